"""Reads which CPUs and devices jobs have, where a suspended job is to be resumed: once for each run of a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.units import Units
from omfs_daemon.slurm.gateway import Gateway

UNREAD_AGAIN = 60.0
"""Seconds after which Slurm is asked again about a job that could not be read."""

_Run = tuple[int, float | None, tuple[Allocation, ...]]


class UnitReader:
    """Remembers the jobs on nodes with suspended jobs, which keep what they have until they leave their nodes."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._known: dict[_Run, Units] = {}
        self._unread: dict[_Run, float] = {}

    def near(self, jobs: Iterable[Job], resumed: Collection[str]) -> dict[int, Units]:
        """By raw id: of suspended jobs, of those ``resumed`` lately, and of all jobs on their nodes. GatewayError if
        Slurm does not answer."""
        placed = [job for job in jobs if job.state is not JobState.PENDING]
        returning = [job for job in placed if job.state is JobState.SUSPENDED or job.ref in resumed]
        nodes = {node for job in returning for node in job.on_nodes}
        runs = {(job.id, job.start, job.allocations): job for job in placed if not nodes.isdisjoint(job.on_nodes)}
        now = self._clock()
        self._known = {run: units for run, units in self._known.items() if run in runs}
        self._unread = {
            run: again for run, again in self._unread.items() if run in runs and now < again <= now + UNREAD_AGAIN
        }
        new = {run: job for run, job in runs.items() if run not in self._known and run not in self._unread}
        found = self._gateway.units(list(new.values())) if new else {}
        self._known |= {run: found[job.id] for run, job in new.items() if job.id in found}
        self._unread |= {run: now + UNREAD_AGAIN for run, job in new.items() if job.id not in found}
        return {job.id: self._known[run] for run, job in runs.items() if run in self._known}
