"""Preemption by requeue: the job is killed and starts over. For jobs that allow it (preemptable in the OMFS paper)."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, ObservedJob, SingleOrderMethod
from omfs_daemon.slurm import orders


class RequeueMethod(SingleOrderMethod):
    """``scontrol requeue`` of a job that is held already, while it runs: it comes back held. A job that ignores SIGTERM
    keeps its nodes for KillWait more seconds."""

    traits = MethodTraits("requeue", keeps_work=False, leaves=True, whole=True)
    speed = MethodSpeed()

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [orders.RequeueJobs(tuple(seen.job.ref for seen in jobs))] if jobs else []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        """Its hold ends, and it starts again in its turn."""
        return []
