"""How often each job was preempted, and for which others; which jobs are set apart for that. Pure.

The rules let no two jobs take CPUs from each other by turns. If Slurm or a site's settings bring it about all the same,
neither gets on, and each change costs both; so both are left to run for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from omfs_daemon.policy.rules.laws import HOUR

_MOST = 2
"""How often each of two jobs may be preempted for the other within an hour."""


class PastPreemptions(NamedTuple):
    """``times``: how often a job was preempted in its life; ``recent``: when and for which job, in the hour before the
    last time. ``waits_since``: as in ``PreemptionHistory``; 0: as Slurm shows it."""

    times: int = 0
    recent: tuple[tuple[float, str], ...] = ()
    waits_since: float = 0.0

    def and_now(self, at: float, preemptor: str, waits_since: float = 0.0) -> PastPreemptions:
        recent = [(time, ref) for time, ref in self.recent if time > at - HOUR]
        return PastPreemptions(self.times + 1, (*recent, (at, preemptor)), waits_since or self.waits_since)


def set_apart(past: Mapping[str, PastPreemptions]) -> dict[str, float]:
    """The jobs that preempted each other more than twice, and until when they are not preempted but for urgent jobs."""
    found: dict[str, float] = {}
    for ref, mine in past.items():
        for other, times in Counter(preemptor for _, preemptor in mine.recent).items():
            theirs = past.get(other, PastPreemptions()).recent
            if times > _MOST and sum(preemptor == ref for _, preemptor in theirs) > _MOST:
                last = max(at for at, _ in (*mine.recent, *theirs))
                found[ref] = max(found.get(ref, 0.0), last + HOUR)
    return found
