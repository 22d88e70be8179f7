"""How a command ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

import typer
from typer.core import TyperGroup

from omfs_daemon.errors import ConfigError, DeniedError, OmfsError, UnansweredError, UnreachableError
from omfs_daemon.terminal.output import clean

EXIT_CODES = """\
Exit codes: 0 done, or the answer is yes; 1 the answer is no, or there are findings; 2 wrong usage or input;
3 the daemon or Slurm's accounting cannot be reached, or the daemon cannot say (yet); 4 permission denied."""


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
        case UnreachableError() | UnansweredError():
            return Exit.UNREACHABLE
        case DeniedError():
            return Exit.DENIED
    return Exit.NO


def run_plainly(app: Callable[[], object], name: str) -> None:
    """Run a command line to its end: whatever happens is one line on stderr and an exit code, never a traceback.

    ``OMFS_TRACEBACK=1`` in the environment shows one, for reports of errors of ours.
    """
    _make_output_safe()
    code: object = Exit.OK
    try:
        app()
    except SystemExit as ended:
        code = ended.code
    except OSError as error:
        code = _not_written(error, name)
    except Exception as error:
        if os.environ.get("OMFS_TRACEBACK") == "1":
            raise
        text = clean(f"{type(error).__name__}: {error}")
        _say(f"{name}: internal error ({text}); OMFS_TRACEBACK=1 shows where: please report it")
        code = Exit.NO
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _not_written(error, name)
    sys.exit(code)  # type: ignore[arg-type]


def _make_output_safe() -> None:
    """Output that was closed is nothing, and a character that the terminal does not have becomes another one."""
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:
            mode = "r" if stream == "stdin" else "w"
            setattr(sys, stream, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115, it stays open
    with suppress(AttributeError):  # a stand-in of tests
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def _not_written(error: OSError, name: str) -> int:
    """Says so, unless only the reader of a pipe has left; what is still in the buffer is dropped."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno != errno.EPIPE:
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        _say(f"{name}: {clean(where)}{error.strerror or error}")
    return int(Exit.NO)


def _say(line: str) -> None:
    with suppress(OSError):
        typer.echo(line, err=True)


class FaultLine(TyperGroup):
    """A command group that turns our errors into one line on stderr and an exit code."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except OmfsError as error:
            typer.echo(f"omfs: {clean(str(error))}", err=True)
            raise typer.Exit(exit_code(error)) from None
