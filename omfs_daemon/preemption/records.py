"""What the step machine emits for history and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Event(NamedTuple):
    """Something that happened to a job. ``data`` holds its numbers."""

    time: float
    job: str
    user: str
    account: str
    event: str
    text: str
    data: Mapping[str, object] = {}


class Paid(NamedTuple):
    """What one stop of a job (``way`` "out") or its return ("in") has cost.

    ``seconds``: from the order until it had let go, or from its turn until it computed; ``moving``: of those, for
    moving its memory (0: unknown); ``size``: bytes moved, on all of its ``nodes``; ``lost``: seconds of
    work thrown away.
    """

    time: float
    job: str
    user: str
    account: str
    method: str
    way: str
    seconds: float
    moving: float
    size: int
    lost: float
    nodes: int = 1
