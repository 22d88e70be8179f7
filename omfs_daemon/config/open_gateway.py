"""Which adapter talks to Slurm: PySlurm where there is one that fits the running Slurm, else Slurm's commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from omfs_daemon.config.schema import SlurmSection
from omfs_daemon.errors import ConfigError
from omfs_daemon.errors import GatewayError
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.pyslurm.pyslurm_gateway import PySlurmGateway
from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.slurm.releases import Release
from omfs_daemon.slurm.commands.run_command import run


class Choice(NamedTuple):
    """The adapter, and why it is this one."""

    gateway: Gateway
    why: str


@contextmanager
def opened(
    section: SlurmSection, python: str = sys.executable, variables: Mapping[str, str] | None = None
) -> Iterator[Choice]:
    """The adapter that ``slurm.gateway`` asks for, for as long as it is needed.

    ConfigError if that is "pyslurm" and it cannot be used. ``python`` has it, run with these ``variables``.
    """
    commands = CommandGateway(section.conf, section.timeout_seconds)
    if section.gateway == "commands":
        yield Choice(commands, 'slurm.gateway = "commands"')
        return
    with closing(PySlurmProcess(section.conf, section.timeout_seconds, python, variables)) as process:
        try:
            fits = _fits(process.release(), _slurm_version(section, commands))
        except GatewayError as error:
            if section.gateway == "pyslurm":
                hint = 'mend it, or set "auto" or "commands"'
                raise ConfigError(f'slurm.gateway = "pyslurm" cannot be used: {error}: {hint}') from None
            process.close()
            yield Choice(commands, str(error))
        else:
            yield Choice(PySlurmGateway(process, commands), fits)


def _fits(pyslurm: str, slurm: str) -> str:
    """That the releases agree, in words; GatewayError if they do not: each PySlurm knows one release's messages."""
    with suppress(ParseError):
        if Release.of(pyslurm) == Release.of(slurm):
            return f"PySlurm {pyslurm} fits Slurm {slurm}"
    raise GatewayError(f"PySlurm {pyslurm} does not fit Slurm {slurm}")


def _slurm_version(section: SlurmSection, commands: CommandGateway) -> str:
    """The running Slurm's; while it is away, that of the commands here."""
    try:
        return commands.settings().version
    except GatewayError:
        arguments = ("scontrol", "--version")
        return run(arguments, timeout=section.timeout_seconds, conf=section.conf).stdout.strip()
