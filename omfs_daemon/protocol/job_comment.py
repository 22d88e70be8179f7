"""The fields of a job's comment: what its owner chooses, and what omfs-run reports.

``omfs:method=METHOD[,METHOD]...``      the preemption methods that the owner chooses
``omfs:exclude=METHOD[,METHOD]...``     those by which it is never to be preempted
``omfs:signal=[B:]NAME``                the signal that warns the job before it is requeued; ``none``: no signal
``omfs:min_runtime=SECONDS``            how long the owner asks the job to run before it is preempted
``omfs:bound=NUMBER``                   the slowdown that is enough for the owner of a real-time job
``omfs:run=RESTARTS:STATE[:KEY=VALUE]...``  the report of omfs-run, its only channel to the daemon while the job runs;
for example ``omfs:run=1:ready:method=dmtcp:from=3:seconds=1.2:lost=0.0``
"""

import re
from typing import Dict, List, NamedTuple, Optional, Union

READY, STOPPING, FAILED, STOPPED, HELD = STATES = "ready", "stopping", "failed", "stopped", "held"

PREFIX = "omfs:"
METHOD_KEY, MIN_RUNTIME_KEY, RUN_KEY = PREFIX + "method=", PREFIX + "min_runtime=", PREFIX + "run="
BOUND_KEY = PREFIX + "bound="
EXCLUDE_KEY, SIGNAL_KEY = PREFIX + "exclude=", PREFIX + "signal="

SIGNALS = "HUP", "INT", "QUIT", "TERM", "USR1", "USR2"
"""Signals that a program can take as a warning."""

NO_SIGNAL = "none"
BATCH_ONLY = "B:"
"""Before the name of a signal, as in Slurm's ``--signal``: to the batch shell alone, not to the job's steps."""

_BEGIN, _END = r"(?:(?<=\s)|^)", r"(?=\s|$)"
_NAMES = r"([a-z0-9_]+(?:,[a-z0-9_]+)*)"
_METHODS = re.compile(_BEGIN + METHOD_KEY + _NAMES + _END)
_EXCLUDED = re.compile(_BEGIN + EXCLUDE_KEY + _NAMES + _END)
_SIGNAL_NAME = "((?:{})?(?:{})|{})".format(BATCH_ONLY, "|".join(SIGNALS), NO_SIGNAL)
_SIGNAL = re.compile(_BEGIN + SIGNAL_KEY + _SIGNAL_NAME + _END)
_MIN_RUNTIME = re.compile(_BEGIN + MIN_RUNTIME_KEY + r"([0-9]{1,9})" + _END)
_BOUND = re.compile(_BEGIN + BOUND_KEY + r"([0-9]{1,6}(?:\.[0-9]{1,6})?)" + _END)
_RUN = re.compile(_BEGIN + RUN_KEY + r"(\S*)")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")


class RunComment(NamedTuple):
    """A report: which run of the job it is about, its state, and the other fields."""

    restarts: int
    state: str
    fields: Dict[str, str]


def make_run_comment(restarts: int, state: str, fields: Dict[str, Union[str, int, float]]) -> str:
    """The report as text; floats have two decimals."""
    parts = [RUN_KEY + str(restarts), state]
    for key, value in fields.items():
        text = "{:.2f}".format(value) if isinstance(value, float) else str(value)
        parts.append("{}={}".format(key, _UNSAFE.sub("_", text)))
    return ":".join(parts)


def find_run_comment(comment: str) -> Optional[RunComment]:
    """The report in a job's comment; None if there is none that can be read.

    Anybody who may change the comment can write one, so the values of its fields need checking.
    """
    found = _RUN.search(comment)
    parts = found.group(1).split(":") if found else []
    if len(parts) < 2 or not re.match(r"[0-9]{1,9}$", parts[0]) or parts[1] not in STATES:
        return None
    fields = dict(part.split("=", 1) for part in parts[2:] if "=" in part)
    return RunComment(int(parts[0]), parts[1], fields)


def put_run_comment(comment: str, report: str) -> str:
    """The comment with the report in place of the previous one, or at its end; the rest is unchanged."""
    found = _RUN.search(comment)
    if found is None:
        return comment + (" " if comment and not comment[-1].isspace() else "") + report
    return comment[: found.start()] + report + _RUN.sub("", comment[found.end() :])


def methods_in_comment(comment: str) -> List[str]:
    """The methods that the owner chooses, known or not, in order; [] without a list that can be read."""
    found = _METHODS.search(comment)
    return found.group(1).split(",") if found else []


def excluded_in_comment(comment: str) -> List[str]:
    """The methods that the owner excludes, known or not; [] without a list that can be read."""
    found = _EXCLUDED.search(comment)
    return found.group(1).split(",") if found else []


def is_signal(text: str) -> bool:
    """Whether it is ``[B:]NAME`` or ``none``."""
    return re.fullmatch(_SIGNAL_NAME, text) is not None


def signal_in_comment(comment: str) -> Optional[str]:
    """The signal that the owner chooses, ``[B:]NAME``; "" for none; None without one that can be read."""
    found = _SIGNAL.search(comment)
    if found is None:
        return None
    return "" if found.group(1) == NO_SIGNAL else found.group(1)


def min_runtime_in_comment(comment: str) -> Optional[int]:
    """The seconds that the owner asks for; None without a number that can be read."""
    found = _MIN_RUNTIME.search(comment)
    return int(found.group(1)) if found else None


def bound_in_comment(comment: str) -> Optional[float]:
    """The slowdown that the owner asks for; None without a number that can be read."""
    found = _BOUND.search(comment)
    return float(found.group(1)) if found else None
