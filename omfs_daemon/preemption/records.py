"""Events and costs, as history and metrics record them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class JobEvent(NamedTuple):
    """Something that happened to a job. ``data``: its numbers. docs/events.md lists the events."""

    time: float
    job: str
    user: str
    account: str
    event: str
    text: str
    data: Mapping[str, object] = {}


class PaidCost(NamedTuple):
    """What one preemption of a job (``direction`` OUT) or its return (IN; cluster/preempt_methods.py) has cost.

    seconds  from the order until it had freed its resources, or from its turn until it computed
    moving   of those, for moving its memory (0: unknown)
    size     bytes moved, on all of its ``nodes``
    lost     seconds of work thrown away
    slowest  seconds that the slowest of its processes was stopped
    """

    time: float
    job: str
    user: str
    account: str
    method: str
    direction: str
    seconds: float
    moving: float
    size: int
    lost: float
    nodes: int = 1
    slowest: float = 0.0
