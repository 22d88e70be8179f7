"""What omfs-run reports in the job's comment, its only channel to the daemon while the job runs.

``omfs:run=RESTARTS:STATE[:KEY=VALUE]...``, for example ``omfs:run=1:ready:method=dmtcp:from=3:seconds=1.2:lost=0.0``.
The user's ``omfs:method=METHOD[,METHOD]...`` is in the same comment.
"""

import re
from typing import Dict, List, NamedTuple, Optional, Union

READY, STOPPING, FAILED, STOPPED, HELD = "ready", "stopping", "failed", "stopped", "held"

RUN_KEY = "omfs:run="

_RUN = re.compile(r"(?:(?<=\s)|^)" + RUN_KEY + r"(\S*)")
_METHODS = re.compile(r"(?:(?<=\s)|^)omfs:method=(\S*)")
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
    """The report in a job's comment; None if there is none that can be read."""
    found = _RUN.search(comment)
    parts = found.group(1).split(":") if found else []
    if len(parts) < 2 or not re.match(r"[0-9]{1,9}$", parts[0]):
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
    """The methods that the user names in the job's comment, in order: ``omfs:method=a,b``."""
    return [name for text in _METHODS.findall(comment) for name in text.split(",") if name]
