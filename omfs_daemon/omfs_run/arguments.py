"""What the user writes behind ``omfs-run`` and in the environment."""

import argparse
import os
import signal
from typing import Any, List, Mapping, NamedTuple, NoReturn, Optional, Sequence

from omfs_daemon.omfs_run import driver_table as drivers

_NAMES = ", ".join(drivers.NAMES)
_LONGEST = 1e6  # seconds

_TELLING = """\
The method is that of --method, else of $OMFS_METHOD, else the first in the job's comment (omfs:method=dmtcp,...) that
is one of: {}; without one the program is simply run.
exit codes: the program's own; 101 stopped, checkpoint verified; 102 held, as no checkpoint could be restarted; 109
wrong usage; 126, 127 the program cannot be started.""".format(_NAMES)


class Misused(Exception):
    """One line that says what is wrong and what is allowed."""


class Options(NamedTuple):
    """``method``: None if the job's comment is to say it. ``within``: seconds for a checkpoint or a restart."""

    command: List[str]
    method: Optional[str]
    directory: Optional[str]
    number: int
    within: float
    fresh_if_lost: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misused("{} (omfs-run --help)".format(message))


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Misused if something is wrong; --help prints and ends with SystemExit."""
    parser = _Parser(
        prog="omfs-run",
        usage="omfs-run [options] PROGRAM [ARGUMENT]...",
        description="Runs a program in a batch job so that the job can be stopped and goes on later where it was.",
        epilog=_TELLING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--method", choices=drivers.NAMES, help="how the program is checkpointed")
    parser.add_argument("--dir", dest="directory", help="where checkpoints lie; absolute, seen by all nodes")
    parser.add_argument("--within", type=_seconds, default=300.0, help="seconds for a checkpoint or a restart (300)")
    parser.add_argument("--signal", type=_signal, default=signal.SIGUSR1, help="method application: what it is sent")
    parser.add_argument("--if-lost", choices=("hold", "fresh"), default="hold", help="when no checkpoint can be used")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT]...")
    found: Any = parser.parse_args(list(arguments))
    command = found.command[1:] if found.command[:1] == ["--"] else found.command
    if not command or not command[0]:
        raise Misused("no program to run (omfs-run [options] PROGRAM [ARGUMENT]...)")
    method = found.method or environment.get("OMFS_METHOD") or None
    if method is not None and method not in drivers.NAMES:
        raise Misused("OMFS_METHOD={}: must be one of {}".format(method, _NAMES))
    return Options(command, method, found.directory, int(found.signal), found.within, found.if_lost == "fresh")


def directory(options: Options, environment: Mapping[str, str], job: str) -> str:
    """Where the job's checkpoints lie: --dir itself, below $OMFS_CKPT_DIR, or beside the job's output."""
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
        raise argparse.ArgumentTypeError("{}: no signal that a program can catch (USR1, USR2, TERM, ...)".format(text))
    return int(found)
