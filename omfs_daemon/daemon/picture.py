"""Looking at Slurm: snapshots for the policy, and jobs by reference for the stops under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.capacity import Capacity
from omfs_daemon.slurm.gateway import Gateway

NODES_SHARE_OF_TIME = 0.1
"""Nodes change seldom: asking for them may take at most this part of the time."""


class Picture:
    """One snapshot with its jobs by reference; the :class:`~omfs_daemon.daemon.stop.View` of the stops."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self.snapshot = snapshot
        self._ledger = ledger
        self._by_ref: dict[str, Job] = {}
        for job in snapshot.jobs.values():
            self._by_ref[job.ref] = job
            if job.state is JobState.PENDING:
                for task in job.task_ids:
                    self._by_ref.setdefault(f"{job.array_id}_{task}", job)

    def job(self, ref: str) -> Job | None:
        """The job; for a task that waits in its array, the array's record."""
        return self._by_ref.get(ref)

    def cpus_free(self, job: Job) -> bool:
        """Whether the CPUs on which a suspended job would run on are free, jobs' claims apart."""
        only_jobs = Ledger(stopped=self._ledger.stopped)
        return Capacity(self.snapshot, only_jobs).has_free_cpus(job.shares)

    def overcommitted(self) -> set[str]:
        """Nodes on which more CPUs run than there are: what a resume over busy CPUs leads to."""
        running: dict[str, int] = {}
        for job in self.snapshot.jobs.values():
            if job.runs:
                for share in job.shares:
                    running[share.node] = running.get(share.node, 0) + share.cpus
        nodes = self.snapshot.nodes
        return {name for name, cpus in running.items() if name in nodes and cpus > nodes[name].cpus}


class Observer:
    """Takes snapshots. Raises GatewayError if Slurm does not answer in full; then there is no picture at all."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._nodes: Mapping[str, Node] = {}
        self._partitions: Mapping[str, Partition] = {}
        self._nodes_again_at = float("-inf")

    def look(self) -> Snapshot:
        """The present picture; its time is when Slurm was *asked*."""
        taken = self._clock()
        jobs = {job.id: job for job in self._gateway.jobs()}
        if taken >= self._nodes_again_at:
            self._nodes = {node.name: node for node in self._gateway.nodes()}
            self._partitions = {partition.name: partition for partition in self._gateway.partitions()}
            now = self._clock()
            self._nodes_again_at = now + (now - taken) * (1 / NODES_SHARE_OF_TIME - 1)
        elif any(node.cpus_taken for node in self._nodes.values()):
            # Slurm's books of the nodes are as old as the look at them: the jobs of this look tell more.
            self._nodes = {name: replace(node, cpus_taken=0, memory_taken=0) for name, node in self._nodes.items()}
        return Snapshot(taken, jobs, self._nodes, self._partitions)
