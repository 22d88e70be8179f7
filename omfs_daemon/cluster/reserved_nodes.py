"""Keeps jobs off the nodes that Slurm keeps free for a reservation of others. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.limits import SiteReservation


class ReservedNodes:
    """Slurm starts no job on a node that is reserved for others before the job's time limit would end it.

    A waiting job excludes these nodes, as if its owner had; jobs that ask for a reservation do not. Remembers the jobs
    that it has changed, so that they stay the same objects.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job, frozenset[str], Job]] = {}

    def kept_free(self, jobs: Sequence[Job], reservations: Sequence[SiteReservation], now: float) -> Sequence[Job]:
        """The jobs, those that wait without the nodes that are reserved before their end."""
        coming = sorted((one for one in reservations if one.end > now and one.nodes), key=lambda one: one.start)
        if not coming:
            self._known = {}
            return jobs
        starts = [one.start for one in coming]
        nodes = list(accumulate(coming, lambda closed, one: closed | one.nodes, initial=frozenset[str]()))
        known: dict[int, tuple[Job, frozenset[str], Job]] = {}
        kept = []
        for job in jobs:
            closed = nodes[bisect_left(starts, now + job.time_limit)] if job.state is JobState.PENDING else nodes[0]
            if job.reservation or closed <= job.request.excluded_nodes:
                kept.append(job)
                continue
            before = self._known.get(job.id)
            if before is None or before[0] is not job or before[1] != closed:
                excluded = job.request.excluded_nodes
                before = (job, closed, replace(job, request=job.request.off_nodes(closed), kept_off=closed - excluded))
            known[job.id] = before
            kept.append(before[2])
        self._known = known
        return kept
