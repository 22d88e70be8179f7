"""The command line of omfs-run and its environment variables."""

import argparse
import os
import signal
from typing import Any, List, Mapping, NamedTuple, NoReturn, Optional, Sequence

from omfs_daemon.omfs_run import driver_table
from omfs_daemon.protocol.exit_codes import HELD, MISUSED, STOPPED

_NAMES = ", ".join(driver_table.NAMES)
_LONGEST = 1e6  # seconds

_EPILOG = """\
The method is that of --method, else of $OMFS_METHOD, else the first in the job's comment (omfs:method=dmtcp,...) that
is one of: {}. Without one the program runs without checkpoints.
exit codes: the program's own; {} stopped, checkpoint verified; {} held, no checkpoint could be restarted; {} wrong
usage; 126, 127 the program cannot be started.""".format(_NAMES, STOPPED, HELD, MISUSED)


class Misused(Exception):
    """Wrong usage; one line that says what is wrong and what is allowed."""


class RunOptions(NamedTuple):
    """``method``: None to take it from the job's comment. ``within``: seconds for a checkpoint or a restart."""

    command: List[str]
    method: Optional[str]
    directory: Optional[str]
    number: int
    within: float
    fresh_if_lost: bool
    may_lose_statuses: bool = False
    rehearses: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misused("{} (omfs-run --help)".format(message))


def make_parser() -> argparse.ArgumentParser:
    """The options, also for the manual page."""
    parser = _Parser(
        prog="omfs-run",
        usage="omfs-run [options] PROGRAM [ARGUMENT]...",
        description="Run a program in a batch job so that the job can be preempted and later continues where it was.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--method", choices=driver_table.NAMES, help="how the program is checkpointed")
    parser.add_argument("--dir", dest="directory", help="where checkpoints are kept: absolute, visible to all nodes")
    parser.add_argument("--within", type=_seconds, default=300.0, help="seconds for a checkpoint or a restart (300)")
    parser.add_argument(
        "--signal",
        type=_signal,
        default=signal.SIGUSR1,
        help="requests a checkpoint from a program under method application (USR1)",
    )
    parser.add_argument("--if-lost", choices=("hold", "fresh"), default="hold", help="if no checkpoint can be used")
    parser.add_argument(
        "--without-child-statuses",
        action="store_true",
        help="under dmtcp without omfs_children.so, checkpoint several processes all the same: exit statuses of"
        " children may be lost",
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="under dmtcp, a checkpoint counts only after a copy of it was restarted up to where the program would go"
        " on; needs memory for both",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT]...")
    return parser


def parse_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> RunOptions:
    """Misused if something is wrong; SystemExit after --help."""
    parser = make_parser()
    found: Any = parser.parse_args(list(arguments))
    command = found.command[1:] if found.command[:1] == ["--"] else found.command
    if not command or not command[0]:
        raise Misused("no program to run (omfs-run [options] PROGRAM [ARGUMENT]...)")
    method = found.method or environment.get("OMFS_METHOD") or None
    if method is not None and method not in driver_table.NAMES:
        raise Misused("OMFS_METHOD={}: must be one of {}".format(method, _NAMES))
    return RunOptions(
        command,
        method,
        found.directory,
        int(found.signal),
        found.within,
        found.if_lost == "fresh",
        found.without_child_statuses,
        found.rehearse,
    )


def checkpoint_directory(options: RunOptions, environment: Mapping[str, str], job: str) -> str:
    """Where the job's checkpoints are kept: --dir itself, below $OMFS_CKPT_DIR, or in the submit directory."""
    if options.directory is not None:
        return options.directory
    if environment.get("OMFS_CKPT_DIR"):
        return os.path.join(environment["OMFS_CKPT_DIR"], job)
    return os.path.join(environment.get("SLURM_SUBMIT_DIR") or os.getcwd(), "omfs-checkpoint." + job)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _LONGEST:
        raise argparse.ArgumentTypeError("{}: seconds, more than 0 and at most {:g}".format(text, _LONGEST))
    return value


def _signal(text: str) -> int:
    name = text.upper()
    found = getattr(signal, name if name.startswith("SIG") else "SIG" + name, None)
    if not isinstance(found, signal.Signals) or found in (signal.SIGKILL, signal.SIGSTOP):
        raise argparse.ArgumentTypeError("{}: must be a signal that can be caught (USR1, USR2, TERM, ...)".format(text))
    return int(found)
