"""What is free now, and what will be free once the preemptions under way are done.

Two counts over the same nodes:

- ``now``: idle at this instant. Slurm may start jobs here, and suspended jobs may resume here.
- ``then``: free once completing jobs and victims have freed their resources and all preemptors run. Each preemptor is
  subtracted once, so nothing is promised twice.

``now`` never exceeds ``then``, so nothing is lent that is promised to a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.cluster.snapshot import PreemptionHistory, PreemptionUnderWay
from omfs_daemon.policy.arrays.free_resources import (
    FreeResources,
    JobResources,
    freed_resources,
    held_resources,
    job_resources,
)
from omfs_daemon.policy.arrays.job_arrays import JobArrays
from omfs_daemon.policy.arrays.node_arrays import Ints, NodeArrays
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays


class Capacity:
    """The two counts for one snapshot. Errors: none; allocations on unknown nodes are ignored."""

    def __init__(self, arrays: SnapshotArrays, history: PreemptionHistory) -> None:
        self.node_arrays, job_arrays, self.blocks = arrays.node_arrays, arrays.job_arrays, arrays.blocks
        self._preempted = history.preempted
        leaving = {ref for preemption in history.under_way for ref in preemption.victims}
        methods = {ref: method for preemption in history.under_way for ref, method in preemption.methods.items()}
        spared = {ref for ref, until in history.spared.items() if until > arrays.taken}
        completing = [job for job in job_arrays.completing if job.ref not in spared]
        self.now, soon = self._count(job_arrays, completing, leaving, methods)
        self._lower_to_slurms_count(_unsettled(job_arrays, history, leaving))
        self.then = self.now.copy()
        for coming in soon:
            self.then.give(coming)
        preemptors = job_arrays.find(preemption.preemptor for preemption in history.under_way)
        for preemption in history.under_way:
            self._take_for_preemptor(preemption, preemptors.get(preemption.preemptor))

    # -- the counts for the snapshot ------------------------------------------------------------------------
    def _count(
        self, job_arrays: JobArrays, completing: list[Job], leaving: set[str], methods: Mapping[str, MethodTraits]
    ) -> tuple[FreeResources, list[JobResources]]:
        """What is idle now, and what is about to be freed. ``completing``: without victims that did not leave in
        time."""
        node_arrays = self.node_arrays
        allocations = job_arrays.allocations_on(node_arrays)
        used_cpus: Ints = np.zeros(len(node_arrays.names), dtype=np.int64)
        used_memory: Ints = np.zeros(len(node_arrays.names), dtype=np.int64)
        np.add.at(used_cpus, allocations.nodes, allocations.cpus)
        np.add.at(used_memory, allocations.nodes, allocations.memory)
        for job in job_arrays.others:  # suspended jobs "free their CPUs, not their memory" (scontrol(1), suspend)
            for node, cpus, memory in job.allocations:
                i = node_arrays.index.get(node)
                if i is not None:
                    used_cpus[i] += cpus if job.holds_cpus else 0
                    used_memory[i] += memory
        running: list[Job] = job_arrays.running.jobs.tolist()
        soon = completing + ([job for job in running if job.ref in leaving] if leaving else [])
        now = FreeResources(
            node_arrays,
            np.where(node_arrays.works, node_arrays.cpus - used_cpus, 0),
            node_arrays.memory - used_memory,
            {name: total.copy() for name, total in node_arrays.gres.items()},
            self._blocked_now([*running, *job_arrays.completing]),
        )
        for job in (*running, *job_arrays.others):
            if job.request.gres or job.parts:
                held = held_resources(node_arrays, job)
                now.take(held._replace(allocations=tuple((i, 0, 0) for i, _, _ in held.allocations)))
        return now, [
            freed_resources(node_arrays, job, methods.get(job.ref) if job.runs else None, self.blocks) for job in soon
        ]

    def _blocked_now(self, occupants: Iterable[Job]) -> Counter[str]:
        """By how many jobs that have their CPUs each suspended job is kept from being resumed."""
        blocks = self.blocks.by_job
        return Counter(ref for job in occupants for ref in blocks.get(job.id, ())) if blocks else Counter()

    def _lower_to_slurms_count(self, unsettled: set[str]) -> None:
        """Use Slurm's own count on nodes where less is free than the jobs' allocations suggest."""
        node_arrays = self.node_arrays
        settled = node_arrays.up & (node_arrays.cpus_taken > 0) & ~node_arrays.mask_of(unsettled)
        free_in_slurm = node_arrays.cpus - node_arrays.cpus_taken
        for i in np.flatnonzero(settled & (free_in_slurm < self.now.cpus)):
            self.now.take(JobResources(((int(i), int(self.now.cpus[i] - free_in_slurm[i]), 0),), ()))

    def _take_for_preemptor(self, preemption: PreemptionUnderWay, preemptor: Job | None) -> None:
        """Subtract the preemptor of a preemption under way, unless it runs already."""
        coming = self.blocked_by_start(preemption.allocations)
        if preemptor is None:
            self.take_later(job_resources(self.node_arrays, preemption.allocations, (), coming))
        elif preemptor.state is JobState.SUSPENDED:
            preempted = self._preempted.get(preemptor.ref)
            here = [allocation._replace(memory=0) for allocation in preemptor.allocations]
            mine = self.blocks.by_job.get(preemptor.id, frozenset())
            self.take_later(job_resources(self.node_arrays, here, preempted.gres if preempted else (), mine))
        elif preemptor.state is JobState.PENDING:
            gres = preemptor.request.gres
            self.take_later(job_resources(self.node_arrays, preemption.allocations, gres, coming))

    # -- updates ------------------------------------------------------------------------------------------------
    def take_now(self, taken: JobResources) -> None:
        """A job starts on idle resources."""
        self.now.take(taken)
        self.then.take(taken)

    def take_later(self, taken: JobResources) -> None:
        """A job will start on resources that are being freed."""
        self.then.take(taken)
        self.now.cap(self.then, [i for i, _, _ in taken.allocations])

    def give_later(self, given: JobResources) -> None:
        """A job is being preempted."""
        self.then.give(given)

    # -- questions ------------------------------------------------------------------------------------------------
    def blocked_by_start(self, allocations: Iterable[Allocation]) -> frozenset[str]:
        """Suspended jobs that cannot be resumed until a job has started there: Slurm chooses its CPUs then."""
        by_node = self.blocks.by_node
        return frozenset(ref for allocation in allocations for ref in by_node.get(allocation.node, ()))

    def cpus_of(self, request: JobRequest) -> int:
        """The CPUs for which the request counts: whole nodes if it is exclusive."""
        return self.node_arrays.cpus_of(request)

    def most_cpus_of(self, request: JobRequest) -> int:
        """The CPUs for which it counts if it gets as many nodes as it may have."""
        return self.node_arrays.most_cpus_of(request)


def size_of(node_arrays: NodeArrays, job_arrays: JobArrays, nodes: Collection[str] | None = None) -> int:
    """The CPUs to which entitlements apply: those of nodes that are up, and those still in use on other nodes.
    ``nodes``: only of these."""
    here = node_arrays.mask_of(nodes) if nodes is not None else np.ones(len(node_arrays.names), dtype=bool)
    total = int(node_arrays.cpus[node_arrays.up & here].sum())
    if bool(node_arrays.up.all()):
        return total
    allocations = job_arrays.allocations_on(node_arrays)
    used: Ints = np.zeros(len(node_arrays.names), dtype=np.int64)
    np.add.at(used, allocations.nodes, allocations.cpus)
    return total + int(np.minimum(used, node_arrays.cpus)[~node_arrays.up & here].sum())


def _unsettled(job_arrays: JobArrays, history: PreemptionHistory, leaving: set[str]) -> set[str]:
    """Nodes with preemptions under way, where Slurm's count is about to change."""
    nodes = {allocation.node for preemption in history.under_way for allocation in preemption.allocations}
    if leaving:
        for job in (*job_arrays.running.jobs.tolist(), *job_arrays.others):
            if job.ref in leaving:
                nodes.update(job.on_nodes)
    return nodes
