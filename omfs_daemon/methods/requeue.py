"""Stop by requeue: the job is killed and starts over, which only jobs may be that say so (OMFS: preemptable)."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.methods import REQUEUE
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.orders import Order


class Requeue:
    """``scontrol requeuehold``; a job that ignores TERM keeps its nodes for KillWait seconds more."""

    traits = REQUEUE

    def stop(self, refs: Sequence[str]) -> list[Order]:
        return [orders.RequeueHold(tuple(refs))]

    def has_let_go(self, job: Job) -> bool:
        return not job.holds_cpus

    def keep_stopped(self, job: Job) -> list[Order]:
        """The hold of a requeued job is one that its owner can release; an administrator's is not."""
        if job.state is JobState.PENDING and job.hold is Hold.USER:
            return [orders.Hold((job.ref,))]
        return []

    def bring_back(self, job: Job, cpus_free: bool) -> list[Order]:
        if job.state is JobState.PENDING and job.hold is not Hold.NONE:
            return [orders.Release((job.ref,))]
        return []
