"""Runs commands: no shell, always a timeout, always the same environment."""

import os
import signal
import subprocess
from typing import NamedTuple, Sequence

# Variables with which a user or a site changes what Slurm's commands print (squeue(1), ENVIRONMENT VARIABLES).
_CHANGES_OUTPUT = ("SQUEUE_", "SCONTROL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")


class CallFailed(Exception):
    """A command could not be started, did not respond in time, or failed."""


class ToolOutput(NamedTuple):
    """What a command printed, and its exit code (-N: ended by signal N)."""

    code: int
    stdout: str
    stderr: str


def run_tool(arguments: Sequence[str], timeout: float) -> ToolOutput:
    """Run a command; CallFailed if it cannot be started or takes longer than ``timeout`` seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_CHANGES_OUTPUT)}
    environment["LC_ALL"] = "C"
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CallFailed("cannot execute {}: {}".format(arguments[0], error)) from None
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the group is still this one
        process.communicate()
        raise CallFailed("{}: no response within {:g} s".format(arguments[0], timeout)) from None
    return ToolOutput(process.returncode, _text(stdout), _text(stderr))


def answer(arguments: Sequence[str], timeout: float) -> str:
    """What the command printed to stdout; CallFailed also if its exit code is not 0."""
    output = run_tool(arguments, timeout)
    if output.code != 0:
        lines = output.stderr.strip().splitlines() or ["(no message)"]
        raise CallFailed("{} {}: exit code {}: {}".format(arguments[0], arguments[1], output.code, lines[-1]))
    return output.stdout


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="surrogateescape")
