"""What other jobs of a snapshot mean for the start of one, found when it is first asked for."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from omfs_daemon.cluster.holds import could_start, is_held
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays


class OtherJobs:
    """Of one snapshot."""

    def __init__(self, arrays: SnapshotArrays) -> None:
        self._arrays = arrays
        self._tiers: list[tuple[int, frozenset[str], Job]] | None = None

    @cached_property
    def jobs(self) -> list[Job]:
        """Those that run or are suspended."""
        arrays = self._arrays.job_arrays
        return [*arrays.running.jobs.tolist(), *arrays.suspended]

    @cached_property
    def alone(self) -> list[Job]:
        """Those on whose nodes no job of another user starts."""
        partitions = self._arrays.partitions
        alone = {name for name, partition in partitions.items() if partition.exclusive_user}
        return [job for job in self.jobs if job.exclusive_user or job.partition in alone]

    @cached_property
    def _tasks(self) -> Counter[int | None]:
        return Counter(job.array_id for job in self.jobs)

    def tasks(self, job: Job) -> int:
        """How many tasks of the same array run."""
        return self._tasks[job.array_id]

    def peer(self, job: Job) -> str:
        """A job for which a singleton waits, "" if there is none."""
        before = (other for other in self._arrays.job_arrays.waiting.jobs.tolist() if other.id < job.id)
        for other in (*self.jobs, *before):
            if other.name == job.name and other.uid == job.uid and other.id != job.id:
                return str(other.ref)
        return ""

    def of_higher_tiers(self, now: float) -> list[tuple[int, frozenset[str], Job]]:
        """Jobs that wait in partitions of a higher tier than others have, with the tier and the nodes that they may
        use; one for each set of nodes."""
        if self._tiers is None:
            partitions = self._arrays.partitions
            least = min((partition.priority_tier for partition in partitions.values()), default=1)
            higher = {name: one for name, one in partitions.items() if one.priority_tier > least}
            found: dict[tuple[str, frozenset[str]], Job] = {}
            for job in self._arrays.job_arrays.waiting.jobs.tolist() if higher else ():
                for name in job.request.partitions:
                    if name in higher and not is_held(job) and could_start(job, now):
                        found.setdefault((name, job.request.required_nodes), job)
            self._tiers = [
                (higher[name].priority_tier, nodes or higher[name].nodes, job) for (name, nodes), job in found.items()
            ]
        return self._tiers
