"""Looking at Slurm: snapshots for the policy, and jobs by reference for the stops under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import NodeFacts, Snapshot
from omfs_daemon.nodes.work import WorkSeen
from omfs_daemon.policy.rules import Rules
from omfs_daemon.slurm.books import Books
from omfs_daemon.slurm.gateway import ByProcesses, Gateway, Waiting

NODES_SHARE_OF_TIME = 0.02
"""Nodes change seldom: asking for them may take at most this part of the time."""


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


class Facts(NamedTuple):
    """What is known of nodes and jobs besides what Slurm tells, as in ``Snapshot``."""

    nodes: Mapping[str, NodeFacts] = {}
    sizes: Mapping[tuple[int, str], int] = {}


class Observer:
    """Takes snapshots. Raises GatewayError if Slurm does not answer in full; then there is no picture at all.

    ``books``: which licences stand for what nodes have.
    """

    def __init__(
        self,
        gateway: Gateway,
        clock: Callable[[], float],
        books: Callable[[], Books] = lambda: Books(()),
        facts: Callable[[], Facts] = Facts,
    ) -> None:
        self._gateway = gateway
        self._clock = clock
        self._books = books
        self._facts = facts
        self._nodes: Mapping[str, Node] = {}
        self._shown: Mapping[str, Node] = {}
        self._partitions: Mapping[str, Partition] = {}
        self._nodes_again_at = float("-inf")

    def look(self) -> Snapshot:
        """The present picture; its time is when Slurm was *asked*."""
        taken = self._clock()
        jobs = self._gateway.jobs()
        if taken >= self._nodes_again_at:
            self._nodes = {node.name: node for node in self._gateway.nodes()}
            self._partitions = {partition.name: partition for partition in self._gateway.partitions()}
            now = self._clock()
            self._nodes_again_at = now + (now - taken) * (1 / NODES_SHARE_OF_TIME - 1)
        elif any(node.cpus_taken for node in self._nodes.values()):
            # Slurm's books of the nodes are as old as the look at them: the jobs of this look tell more.
            self._nodes = {name: replace(node, cpus_taken=0, memory_taken=0) for name, node in self._nodes.items()}
        return self._snapshot(taken, jobs)

    def look_for_urgent(self, rules: Rules) -> Snapshot | None:
        """A picture to decide by for urgent jobs alone: what runs, and which urgent jobs wait; nodes are as in the last
        full look. None where that is not faster, or nothing was seen yet."""
        gateway = self._gateway
        if not self.has_urgent_looks(rules) or not isinstance(gateway, ByProcesses):
            return None
        taken = self._clock()
        urgent = [rule for rule in rules.classes if rule.urgent]
        seen = gateway.jobs_at_once([Waiting(rule.partitions, rule.qos, rule.accounts) for rule in urgent])
        return self._snapshot(taken, seen)

    def has_urgent_looks(self, rules: Rules) -> bool:
        """Whether a look for urgent jobs can be had, and makes sense."""
        return (
            isinstance(self._gateway, ByProcesses) and bool(self._nodes) and any(rule.urgent for rule in rules.classes)
        )

    def _snapshot(self, taken: float, jobs: list[Job]) -> Snapshot:
        jobs, nodes = self._with_books(jobs)
        facts = self._facts()
        return Snapshot(taken, {job.id: job for job in jobs}, nodes, self._partitions, facts.nodes, facts.sizes)

    def _with_books(self, jobs: list[Job]) -> tuple[list[Job], Mapping[str, Node]]:
        """The mapping is the same object for as long as no node changes: what is laid out from it is kept then."""
        books = self._books()
        if not books.books:
            return jobs, self._nodes
        jobs, nodes = books.with_books(jobs, list(self._nodes.values()), self._gateway.licenses())
        if len(nodes) != len(self._shown) or any(self._shown.get(node.name) is not node for node in nodes):
            self._shown = {node.name: node for node in nodes}
        return jobs, self._shown
