"""Stop by requeue: the job is killed and starts over, which only jobs may be that say so (OMFS: preemptable)."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import REQUEUE
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import Plain
from omfs_daemon.slurm import orders


class Requeue(Plain):
    """``scontrol requeuehold``; a job that ignores TERM keeps its nodes for KillWait seconds more."""

    traits = REQUEUE
    pace = Pace()

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        return [orders.RequeueHold(tuple(seen.job.ref for seen in jobs))]

    def keep_stopped(self, seen: Seen) -> list[Action]:
        """The hold of a requeued job is one that its owner can release; an administrator's is not."""
        job = seen.job
        if job.state is JobState.PENDING and job.hold is Hold.USER:
            return [orders.Hold((job.ref,))]
        return []

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        job = seen.job
        if job.state is JobState.PENDING and job.hold is not Hold.NONE:
            return [orders.Release((job.ref,))]
        return []
