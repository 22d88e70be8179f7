"""Preemption by requeue: the job is killed and starts over. For jobs that allow it (preemptable in the OMFS paper)."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, ObservedJob, SingleOrderMethod
from omfs_daemon.slurm import orders


class RequeueMethod(SingleOrderMethod):
    """``scontrol requeuehold``; a job that ignores SIGTERM keeps its nodes for KillWait more seconds."""

    traits = MethodTraits("requeue", keeps_work=False, leaves=True)
    speed = MethodSpeed()

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [orders.RequeueHold(tuple(seen.job.ref for seen in jobs))]

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        """The owner could release the hold of a requeued job; not an administrator's hold, which replaces it."""
        job = seen.job
        if job.state is JobState.PENDING and job.hold is Hold.USER:
            return [orders.HoldJobs((job.ref,))]
        return []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        job = seen.job
        if job.state is JobState.PENDING and job.hold is not Hold.NONE:
            return [orders.ReleaseJobs((job.ref,))]
        return []
