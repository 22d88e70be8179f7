"""The launcher's one word in the job's comment: the only way to tell the daemon something while the job runs.

``omfs:run=RESTARTS:STATE[:KEY=VALUE]...``, for example ``omfs:run=1:ready:method=dmtcp:from=3:seconds=1.2:lost=0.0``.
"""

import re
from typing import Dict, List, NamedTuple, Optional, Union

READY, STOPPING, FAILED, STOPPED, HELD = "ready", "stopping", "failed", "stopped", "held"

_WORD = re.compile(r"(?:(?<=\s)|^)omfs:run=(\S*)")
_METHODS = re.compile(r"(?:(?<=\s)|^)omfs:method=(\S*)")
_SAFE = re.compile(r"[^A-Za-z0-9_.+-]")


class Word(NamedTuple):
    """What a word says: of which run of the job, its state, and the rest."""

    restarts: int
    state: str
    fields: Dict[str, str]


def make(restarts: int, state: str, fields: Dict[str, Union[str, int, float]]) -> str:
    """The word; numbers that are no integers with two decimals."""
    texts = ["omfs:run={}".format(restarts), state]
    for key, value in fields.items():
        text = "{:.2f}".format(value) if isinstance(value, float) else str(value)
        texts.append("{}={}".format(key, _SAFE.sub("_", text)))
    return ":".join(texts)


def find(comment: str) -> Optional[Word]:
    """The word that a comment holds, if it is one."""
    found = _WORD.search(comment)
    parts = found.group(1).split(":") if found else []
    if len(parts) < 2 or not re.match(r"[0-9]{1,9}$", parts[0]):
        return None
    fields = dict(part.split("=", 1) for part in parts[2:] if "=" in part)
    return Word(int(parts[0]), parts[1], fields)


def put(comment: str, word: str) -> str:
    """The comment with the word in place of the old one, or at its end; the rest as it was."""
    found = _WORD.search(comment)
    if found is None:
        return comment + (" " if comment and not comment[-1].isspace() else "") + word
    return comment[: found.start()] + word + _WORD.sub("", comment[found.end() :])


def methods(comment: str) -> List[str]:
    """The methods that the job's comment names, in its order: ``omfs:method=a,b``."""
    return [name for text in _METHODS.findall(comment) for name in text.split(",") if name]
