"""Which jobs the daemon may touch: those of some partitions and accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from omfs_daemon.cluster.jobs import Job, JobState, differ_in_run_time_only, with_run_time
from omfs_daemon.cluster.nodes import Partition

OUT_OF_SCOPE = "not in scope"
"""``Job.set_aside`` of a job that is out of scope."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Empty: all partitions, or all accounts. Accounts below a named one are not in scope by that."""

    partitions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    @property
    def is_everything(self) -> bool:
        return not self.partitions and not self.accounts

    def contains(self, job: Job) -> bool:
        """A job that waits in several partitions is in scope only if each of them is: it will run in one of them; and
        a heterogeneous job in several only if each is."""
        if self.accounts and job.account not in self.accounts:
            return False
        if not self.partitions:
            return True
        if (job.state is JobState.PENDING or job.parts) and job.request.partitions:
            return self.partitions.issuperset(job.request.partitions)
        return job.partition in self.partitions

    def nodes(self, partitions: Mapping[str, Partition]) -> frozenset[str] | None:
        """The nodes on which jobs in scope can run; None for all."""
        if not self.partitions:
            return None
        found = (partitions[name].nodes for name in self.partitions if name in partitions)
        return frozenset[str]().union(*found)

    @property
    def text(self) -> str:
        """For people; "" for everything."""
        kinds = (("partitions", self.partitions), ("accounts", self.accounts))
        return "; ".join(f"{kind} {', '.join(sorted(names))}" for kind, names in kinds if names)


def is_out_of_scope(job: Job) -> bool:
    """Whether the daemon has nothing to do with the job: it is use of its nodes, and nobody's share."""
    return job.set_aside == OUT_OF_SCOPE


class ScopedJobs:
    """Sets jobs out of scope aside. A job that has not changed stays the same object, so that arrays made from the jobs
    are kept."""

    def __init__(self, scope: Callable[[], Scope]) -> None:
        self._scope = scope
        self._known: dict[int, tuple[Job, Job]] = {}

    def mark(self, jobs: list[Job]) -> list[Job]:
        """The jobs, with ``set_aside`` where one is out of scope."""
        scope = self._scope()
        if scope.is_everything:
            self._known = {}
            return jobs
        if len(self._known) > 2 * len(jobs) + 1000:
            self._known = {}
        return [job if scope.contains(job) else self._set_aside(job) for job in jobs]

    def _set_aside(self, job: Job) -> Job:
        before = self._known.get(job.id)
        if before is not None and before[0] is job:
            marked = before[1]
        elif before is not None and differ_in_run_time_only(before[0], job):
            marked = with_run_time(before[1], job.run_time)
        else:
            marked = replace(job, set_aside=OUT_OF_SCOPE)
        self._known[job.id] = job, marked
        return marked
