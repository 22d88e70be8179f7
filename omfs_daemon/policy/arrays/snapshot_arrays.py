"""A snapshot as arrays, for the planner and the validator."""

from __future__ import annotations

from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.cluster.units import ResumeBlocks, resume_blocks
from omfs_daemon.policy.arrays.job_arrays import JobArrays
from omfs_daemon.policy.arrays.node_arrays import NodeArrays


class SnapshotArrays:
    """``node_arrays``, ``job_arrays``; ``taken``, ``facts``, ``sizes``, ``nodes``, ``partitions``, ``limits``, and
    ``remaining`` as in the snapshot; ``blocks``: which suspended jobs cannot be resumed, none where CPUs are only
    counted.

    With the arrays ``before``, only changed nodes and jobs are read: those that are not the same objects. Arrays made
    from each other belong to one thread.
    """

    def __init__(self, snapshot: Snapshot, before: SnapshotArrays | None = None) -> None:
        self.taken, self.facts, self.sizes = snapshot.taken, snapshot.facts, snapshot.sizes
        self.nodes, self.partitions, self.limits = snapshot.nodes, snapshot.partitions, snapshot.limits
        self.remaining = snapshot.remaining
        same = before is not None and before.node_arrays.is_of(snapshot.nodes, snapshot.partitions)
        self.node_arrays: NodeArrays = (
            before.node_arrays if before and same else NodeArrays(snapshot.nodes, snapshot.partitions)
        )
        # Start over once most patterns have no jobs left.
        keeps = before is not None and len(before.job_arrays.patterns.first) <= 2 * len(snapshot.jobs)
        self.job_arrays: JobArrays = JobArrays(snapshot.jobs, before.job_arrays if before and keeps else None)
        jobs, self.blocks = self.job_arrays, ResumeBlocks()
        if snapshot.units is not None and jobs.suspended:
            others = [*jobs.running.jobs.tolist(), *jobs.others]
            self.blocks = resume_blocks(jobs.suspended, others, snapshot.units, snapshot.taken)
