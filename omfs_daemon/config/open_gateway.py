"""Choose the adapter for Slurm: PySlurm if its release matches the running Slurm, else Slurm's commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from omfs_daemon.config.schema import SlurmSection
from omfs_daemon.errors import ConfigError, GatewayError, ParseError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.pyslurm.pyslurm_gateway import PySlurmGateway
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.slurm.releases import SlurmRelease


class ChosenGateway(NamedTuple):
    """The adapter, and why it is this one."""

    gateway: Gateway
    why: str


@contextmanager
def open_gateway(
    section: SlurmSection, python: str = sys.executable, variables: Mapping[str, str] | None = None
) -> Iterator[ChosenGateway]:
    """The adapter that ``slurm.gateway`` names; it is closed at the end.

    ConfigError if that is "pyslurm" and it cannot be used. ``python``: the interpreter that has PySlurm, run with
    these ``variables`` in its environment.
    """
    commands = CommandGateway(section.conf, section.timeout_seconds)
    if section.gateway == "commands":
        yield ChosenGateway(commands, 'slurm.gateway = "commands"')
        return
    with closing(PySlurmProcess(section.conf, section.timeout_seconds, python, variables)) as process:
        try:
            fits = _fits(process.release(), _slurm_version(section, commands))
        except GatewayError as error:
            if section.gateway == "pyslurm":
                hint = 'fix it, or set "auto" or "commands"'
                raise ConfigError(f'slurm.gateway = "pyslurm" cannot be used: {error}: {hint}') from None
            process.close()
            yield ChosenGateway(commands, str(error))
        else:
            yield ChosenGateway(PySlurmGateway(process, commands), fits)


def _fits(pyslurm: str, slurm: str) -> str:
    """A line that the releases match; GatewayError if they do not: each PySlurm knows one release's messages."""
    with suppress(ParseError):
        if SlurmRelease.of(pyslurm) == SlurmRelease.of(slurm):
            return f"PySlurm {pyslurm} fits Slurm {slurm}"
    raise GatewayError(f"PySlurm {pyslurm} does not fit Slurm {slurm}")


def _slurm_version(section: SlurmSection, commands: CommandGateway) -> str:
    """The running Slurm's version; while it does not answer, that of the commands installed here."""
    try:
        return commands.settings().version
    except GatewayError:
        arguments = ("scontrol", "--version")
        return run_command(arguments, timeout=section.timeout_seconds, conf=section.conf).stdout.strip()
