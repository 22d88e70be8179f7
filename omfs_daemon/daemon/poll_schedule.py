"""When Slurm is looked at next, and how much of it: at the poll, at once when something happened, and never more than a
share of the time or a number of calls. Pure: times (seconds since the epoch) go in and come out."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

QUICK_POLL = 0.2
"""Seconds between two looks while a stop is under way."""

LOOK_AGAIN = 0.05
"""Seconds after a look that was woken for, until the next one: the submit plug-in runs before the job is listed."""

IDLE_SHARE = 4.0
"""For each second of looking pass four without, in the long run: a fifth of the time, for each kind of look."""

QUICK_ENOUGH = 0.1
"""Seconds; where a full look takes less, no other is made."""

BURST = 5.0
"""Seconds for which looks may come faster than in the long run, after as long a time with fewer."""


class Look(Enum):
    """How much is looked at: everything, or only what an urgent start needs (see ``Observer``)."""

    FULL = "full"
    URGENT = "urgent"


class Next(NamedTuple):
    at: float
    look: Look


class Rhythm:
    """What was looked at lately, and what that allows."""

    def __init__(self) -> None:
        self._ended = {look: float("-inf") for look in Look}
        self._took = dict.fromkeys(Look, 0.0)
        self._woken: Look | None = None
        self._may_look = {look: float("-inf") for look in Look}
        self._may_call = float("-inf")

    def looked(self, look: Look, began: float, ended: float, calls: int, rate: float, woken: bool) -> None:
        """After a look and all that was ordered because of it: ``calls`` of Slurm in all, at most ``rate`` a second in
        the long run; ``woken``: whether something had happened for which nothing was found to do."""
        took = ended - began
        self._ended[look], self._took[look] = ended, took
        self._woken = look if woken else None
        # What a time with fewer looks has left over is kept for a burst, no longer.
        self._may_look[look] = max(self._may_look[look], ended - BURST) + (1 + IDLE_SHARE) * took
        self._may_call = max(self._may_call, ended - BURST) + calls / rate

    def next(self, poll: float, under_way: bool, touched: bool, changed: bool, has_urgent: bool) -> Next:
        """``poll``: seconds between two looks while nothing happens; ``under_way``: whether stops are; ``touched``:
        whether something has happened in Slurm since the last look, ``changed``: whether something else has;
        ``has_urgent``: whether there are urgent looks."""
        allowed = self._may_look
        pause = 0.0 if changed else QUICK_POLL if under_way else poll
        due = Next(max(allowed[Look.FULL], self._ended[Look.FULL] + pause), Look.FULL)
        quick = Look.URGENT if has_urgent and self._took[Look.FULL] > QUICK_ENOUGH else Look.FULL
        if touched:
            due = min(due, Next(allowed[quick], quick), key=_at)
        elif self._woken is not None:
            due = min(due, Next(max(allowed[quick], self._ended[self._woken] + LOOK_AGAIN), quick), key=_at)
        return due._replace(at=max(due.at, self._may_call))


def _at(one: Next) -> float:
    return one.at
