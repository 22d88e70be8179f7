"""What conservative backfilling would have put into the CPUs that were kept for one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.kernels.hole_kernel import fill_hole

HOUR = 3600.0


class IdleProfile(NamedTuple):
    """``free[i]`` CPUs are idle from ``time[i]`` (seconds, ascending) to the next time; the last ones from then on."""

    time: Floats
    free: Ints


class HoleQueue(NamedTuple):
    """Pending jobs in the order of the queue; times and lengths in seconds, ``length`` inf: no limit."""

    job_id: Sequence[str]
    submit: Floats
    cores: Ints
    length: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FilledHole:
    """A hole and what fits into it; arrays have one entry per job of the queue.

    start            of the job for which the hole is kept
    first_fit        the first time from which the job's cores are free until its end; inf: never
    cores_at_submit  idle cores when the job came, after the bookings before it
    """

    profile: IdleProfile
    queue: HoleQueue
    start: float
    first_fit: Floats
    accepted: Bools
    cores_at_submit: Ints

    @property
    def core_hours(self) -> float:
        """Accepted cores times lengths (Equation 4)."""
        return float((self.queue.cores * self.queue.length)[self.accepted].sum()) / HOUR

    @property
    def idle_core_hours(self) -> float:
        """Of the hole, from its first stamp to its end."""
        edges = np.append(np.minimum(self.profile.time, self.start), self.start)
        return float((np.diff(edges) * self.profile.free).sum()) / HOUR

    @property
    def filled_share(self) -> float:
        idle = self.idle_core_hours
        return self.core_hours / idle if idle else 0.0

    def refused_by(self, job: int) -> str:
        """``end``: it came when its cores were free, but would end too late; ``cores``: they never are; ``both``: they
        were not free when it came, and from its first fit it would end too late; empty: accepted."""
        if self.accepted[job]:
            return ""
        fit = self.first_fit[job]
        if not np.isfinite(fit):
            return "cores"
        return "end" if fit <= max(self.queue.submit[job], self.profile.time[0]) else "both"

    def refused(self, *reasons: str) -> int:
        """How many jobs were refused for one of these reasons."""
        return sum(self.refused_by(job) in reasons for job in range(len(self.queue.job_id)))


def filled_hole(profile: IdleProfile, queue: HoleQueue, start: float) -> FilledHole:
    """Book each job in the order of the queue, at its submission or a stamp, if it then ends by ``start`` (Yoon et al.
    2020, section 3). Nothing delays ``start`` or a job that was accepted before."""
    at = int(np.searchsorted(profile.time, start))
    time, free = profile.time.astype(np.float64), profile.free.astype(np.int64)
    if at == 0:
        time, free = np.insert(time, 0, start), np.insert(free, 0, 0)
    elif at == len(time) or time[at] != start:
        time, free = np.insert(time, at, start), np.insert(free, at, free[at - 1])
    found = fill_hole(
        time,
        free,
        float(start),
        queue.submit.astype(np.float64),
        queue.cores.astype(np.int64),
        queue.length.astype(np.float64),
    )
    return FilledHole(profile, queue, start, *found)
