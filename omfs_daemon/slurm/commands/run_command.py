"""Run Slurm's commands: no shell, always a timeout, always the same environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from omfs_daemon.errors import GatewayError, GatewayTimeout

# Variables with which a user or a site changes what the commands print (squeue(1), ENVIRONMENT VARIABLES).
_CHANGES_OUTPUT = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")

_SHOWN = 120

_WRONG_CONF = "Unable to process configuration file"
_SAYS = re.compile(r"^\w+: (?:error: )?(?:_?\w+: )?")
_LINES_SHOWN = 3


class CommandOutput(NamedTuple):
    """The output and exit code of a command."""

    stdout: str
    stderr: str
    code: int


class Runner(Protocol):
    """The type of ``run_command``; others record commands, or answer from records."""

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        conf: Path | None = None,
        check: bool = True,
        variables: Mapping[str, str] | None = None,
    ) -> CommandOutput: ...


def run_command(
    arguments: Sequence[str],
    *,
    timeout: float,
    conf: Path | None = None,
    check: bool = True,
    stdin: str = "",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> CommandOutput:
    """Run one command and return what it printed.

    ``conf`` becomes SLURM_CONF, ``variables`` are added to the environment. Times are printed as seconds since
    the epoch and array task lists in full. Raises GatewayTimeout after ``timeout`` seconds, after the whole process
    group has been killed (a command waits for minutes for a dead slurmctld); GatewayError if the command cannot
    be started or, with ``check``, ends with an exit code other than 0; at once if there is no ``conf``, for which a
    command would search the network for many seconds.
    """
    if conf is not None and (why := _why_no_conf(conf)):
        raise GatewayError(f"slurm.conf = {str(conf)!r} in the configuration: {why}")
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(conf) | dict(variables or {}),
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise GatewayError(f"cannot run {_short(arguments)}: {error}") from None
    try:
        stdout, stderr = process.communicate(stdin.encode(), timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise GatewayTimeout(f"{_short(arguments)}: no answer from Slurm within {timeout:g} s") from None
    except BaseException:
        _end(process)
        raise
    output = CommandOutput(_text(stdout), _text(stderr), process.returncode)
    if check and output.code != 0:
        raise failure(arguments, output)
    return output


def failure(arguments: Sequence[str], output: CommandOutput) -> GatewayError:
    """The error with the command, its exit code and its last message; of a wrong slurm.conf, what is before it."""
    lines = output.stderr.strip().splitlines() or output.stdout.strip().splitlines() or ["(no message)"]
    text = lines[-1]
    if _WRONG_CONF in text and (said := [_SAYS.sub("", line) for line in lines[:-1]]):
        text = f"{_WRONG_CONF}: {'; '.join(said[-_LINES_SHOWN:])}"
    return GatewayError(f"{_short(arguments)}: exit {output.code}: {text}")


def _why_no_conf(conf: Path) -> str:
    """Empty for a file."""
    try:
        if conf.is_file():
            return ""
        if conf.is_dir():
            return "is a directory, must be the file in it"
        return "is no regular file" if conf.exists() else "there is no such file"
    except OSError as error:
        return str(error.strerror)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def environment(conf: Path | None) -> dict[str, str]:
    """For all commands to the Slurm of ``conf``: no variable of a user or a site changes their output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_CHANGES_OUTPUT)}
    environment |= {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    # Else both ask slurmctld for its federation each time that they ask for a single job.
    environment |= {"SQUEUE_LOCAL": "1", "SCONTROL_LOCAL": "1"}
    if conf is not None:
        environment["SLURM_CONF"] = str(conf)
    return environment


def _text(output: bytes) -> str:
    # Names and comments hold any bytes; they must not stop the daemon.
    return output.decode("utf-8", errors="replace")


def _short(arguments: Sequence[str]) -> str:
    text = " ".join(arguments)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
