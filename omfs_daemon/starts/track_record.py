"""How much later than estimated starts have come, and p90 by that. Pure.

Draws know nothing of jobs that come later and overtake, and take the errors of run times to have nothing in common. On
recorded workloads seven starts in ten came before the p90 of the draws (docs/predictions.md). So p90 is no earlier
than what nine in ten of the latest starts kept to: split conformal prediction, of the wait over its p50.

That holds for moments like those that are counted. People ask while they wait, and most often about jobs that wait
long: so starts are noted when a job is first seen and after each hour of waiting, and each of these moments counts the
same. A start is known as soon as it has come. The daemon and ``omfs experiment predictors`` both keep this record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from math import isfinite
from typing import NamedTuple

from numpy.random import Generator

from omfs_daemon.predict.start_times import StartQuantiles

LATEST, ENOUGH = 200, 20
"""So many of the latest starts count; of fewer than ``ENOUGH`` nothing is concluded."""
NOTED_EVERY = 3600.0
"""Seconds from one moment to the next of a job that waits."""
_LEAST = 60.0
"""Seconds that are added to every wait: of shorter ones the ratio says little."""


class NotedStart(NamedTuple):
    """The start of a job as it was estimated at one of the moments of its waiting, all equally likely: times in seconds
    since the epoch.

    at        the moment; ``last``: the latest moment so far
    p50, p90  seconds from it, as they were told; inf: none was foreseen
    moments   how many there have been; it stands for all of them
    began     when the job started, None: not yet
    """

    job: int
    at: float
    p50: float
    p90: float
    moments: int
    last: float
    began: float | None = None

    @property
    def wait(self) -> float:
        """Seconds from the moment to the start."""
        return max(0.0, (self.began or 0.0) - self.at)


class TrackRecord:
    """``random``: draws the moments; ``noted``: what is known already."""

    def __init__(self, random: Generator, noted: Iterable[NotedStart] = ()) -> None:
        known = sorted(noted, key=lambda one: one.began or 0.0)
        self._random = random
        self._waiting = {one.job: one for one in known if one.began is None}
        self._started = deque((one for one in known if one.began is not None), maxlen=LATEST)
        self._late: float | None = None

    def is_due(self, job: int, now: float) -> bool:
        """Whether the start of a job that waits is to be noted."""
        noted = self._waiting.get(job)
        return noted is None or not 0 <= now - noted.last < NOTED_EVERY

    def note(self, job: int, at: float, start: StartQuantiles) -> NotedStart:
        """One more moment; what is kept of the job."""
        before = self._waiting.get(job)
        moments = 1 if before is None else before.moments + 1
        noted = NotedStart(job, at, start.p50, start.p90, moments, at)
        if before is not None and self._random.integers(moments) > 0:
            noted = before._replace(moments=moments, last=at)
        self._waiting[job] = noted
        return noted

    def began(self, job: int, at: float) -> NotedStart | None:
        """A job has started; None if that tells nothing."""
        noted = self._waiting.pop(job, None)
        if noted is None or not isfinite(noted.p50):
            return None
        known = noted._replace(began=at)
        self._started.append(known)
        self._late = None
        return known

    def keep_only(self, jobs: Container[int]) -> list[int]:
        """Of those that have not started only these wait still; those that do not."""
        gone = [job for job in self._waiting if job not in jobs]
        for job in gone:
            del self._waiting[job]
        return gone

    @property
    def late(self) -> float:
        """See ``lateness``."""
        if self._late is None:
            self._late = lateness(self._started)
        return self._late

    def held(self) -> tuple[float | None, int]:
        """The share of the moments whose start came no later than their p90, None of too few starts; and of how many
        starts."""
        if len(self._started) < ENOUGH:
            return None, len(self._started)
        kept = sum(one.moments for one in self._started if one.wait <= one.p90)
        return kept / sum(one.moments for one in self._started), len(self._started)


def lateness(starts: Iterable[NotedStart]) -> float:
    """How many times its p50 a wait takes at most, with nine chances in ten; 1 if too few are known."""
    known = list(starts)
    if len(known) < ENOUGH:
        return 1.0
    ratios = sorted(((one.wait + _LEAST) / (max(0.0, one.p50) + _LEAST), one.moments) for one in known)
    every = sum(moments for _, moments in ratios)
    wanted, reached = 0.9 * every * (1 + 1 / len(known)), 0
    for ratio, moments in ratios:
        reached += moments
        if reached >= wanted:
            return max(1.0, ratio)
    return max(1.0, ratios[-1][0])


def widened(start: StartQuantiles, late: float) -> StartQuantiles:
    """With a p90 no earlier than what starts are late."""
    return start._replace(p90=max(start.p90, late * (start.p50 + _LEAST) - _LEAST))
