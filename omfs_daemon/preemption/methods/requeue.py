"""Preemption by requeue: the job is killed and starts over. For jobs that allow it (preemptable in the OMFS paper)."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.holds import is_held, is_held_by_us, may_hold
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, ObservedJob, SingleOrderMethod
from omfs_daemon.slurm import orders


class RequeueMethod(SingleOrderMethod):
    """An administrator's hold on the running job, then ``scontrol requeue``: it comes back held. A job that ignores
    SIGTERM keeps its nodes for KillWait more seconds."""

    traits = MethodTraits("requeue", keeps_work=False, leaves=True)
    speed = MethodSpeed()

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        """Of a running job that somebody else holds the hold stays theirs."""
        unheld = tuple(seen.job.ref for seen in jobs if not is_held(seen.job))
        hold = [orders.HoldJobs(unheld)] if unheld else []
        return [*hold, orders.RequeueJobs(tuple(seen.job.ref for seen in jobs))]

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        """It has no hold of ours, or one that its owner can release, if Slurm or its own script has requeued it."""
        return [orders.HoldJobs((seen.job.ref,))] if may_hold(seen.job) else []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        """Also a running job, whose requeue was refused or had no effect."""
        return [orders.ReleaseJobs((seen.job.ref,))] if is_held_by_us(seen.job) else []
