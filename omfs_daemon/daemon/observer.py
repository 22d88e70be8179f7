"""Takes snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.slurm.node_licenses import Books
from omfs_daemon.slurm.gateway import ByProcesses
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import Waiting
from omfs_daemon.cluster.snapshot import Facts

NODES_SHARE_OF_TIME = 0.02
"""Nodes change seldom: asking for them may take at most this part of the time."""


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
