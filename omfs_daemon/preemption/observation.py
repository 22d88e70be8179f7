"""A snapshot with its jobs by reference, as the step machine sees it: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.preemption.methods.node_work import WorkSeen


def _no_work(_ref: str) -> WorkSeen | None:
    return None


class Picture:
    """One snapshot with its jobs by reference; the :class:`~omfs_daemon.daemon.stop.View` of the stops.

    ``work``: what was last done on a job's nodes.
    """

    def __init__(self, snapshot: Snapshot, work: Callable[[str], WorkSeen | None] = _no_work) -> None:
        self.snapshot = snapshot
        self.work = work
        self._by_ref: dict[str, Job] = {}
        for job in snapshot.jobs.values():
            self._by_ref[job.ref] = job
            if job.state is JobState.PENDING:
                for task in job.task_ids:
                    self._by_ref.setdefault(f"{job.array_id}_{task}", job)

    def job(self, ref: str) -> Job | None:
        """The job; for a task that waits in its array, the array's record."""
        return self._by_ref.get(ref)

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could run on side by side on what no job runs on: the first ones first."""
        taken = _cpus_by_node(job for job in self.snapshot.jobs.values() if job.holds_cpus)
        free = {name: node.cpus - taken[name] for name, node in self.snapshot.nodes.items() if node.up}
        fitting = set()
        for job in jobs:
            if all(free.get(share.node, 0) >= share.cpus for share in job.shares):
                fitting.add(job.ref)
                for share in job.shares:
                    free[share.node] -= share.cpus
        return fitting

    def overcommitted(self) -> set[str]:
        """Nodes on which more CPUs run than there are: what a resume over busy CPUs leads to."""
        running = _cpus_by_node(job for job in self.snapshot.jobs.values() if job.runs)
        nodes = self.snapshot.nodes
        return {name for name, cpus in running.items() if name in nodes and cpus > nodes[name].cpus}


def _cpus_by_node(jobs: Iterable[Job]) -> Counter[str]:
    held: Counter[str] = Counter()
    for job in jobs:
        for share in job.shares:
            held[share.node] += share.cpus
    return held
