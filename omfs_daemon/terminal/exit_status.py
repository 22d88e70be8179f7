"""How a command ends."""

from __future__ import annotations

from enum import IntEnum

import typer
from typer.core import TyperGroup

from omfs_daemon.errors import ConfigError, DeniedError, OmfsError, UnreachableError
from omfs_daemon.terminal.output import clean

EXIT_CODES = """\
Exit codes: 0 done, or the answer is yes; 1 the answer is no, or there are findings; 2 wrong usage or input;
3 the daemon cannot be reached; 4 permission denied."""


class Exit(IntEnum):
    """The exit codes, as ``omfs --help`` documents them."""

    OK = 0
    NO = 1
    INPUT = 2
    UNREACHABLE = 3
    DENIED = 4


def exit_code(error: OmfsError) -> Exit:
    match error:
        case ConfigError():
            return Exit.INPUT
        case UnreachableError():
            return Exit.UNREACHABLE
        case DeniedError():
            return Exit.DENIED
    return Exit.NO


class FaultLine(TyperGroup):
    """A command group that turns our errors into one line on stderr and an exit code."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except OmfsError as error:
            typer.echo(f"omfs: {clean(str(error))}", err=True)
            raise typer.Exit(exit_code(error)) from None
