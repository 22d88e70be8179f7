"""Preemption by suspension: SIGSTOP by Slurm. CPUs become free; memory and generic resources stay allocated."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, ObservedJob, SingleOrderMethod
from omfs_daemon.slurm import orders


class SuspendMethod(SingleOrderMethod):
    """``scontrol suspend`` and ``resume``. Only an administrator can resume, so no hold is needed."""

    traits = MethodTraits("suspend", keeps_work=True, leaves=False, whole=True)
    speed = MethodSpeed()

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [orders.SuspendJobs(tuple(seen.job.ref for seen in jobs))] if jobs else []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        """Only where the CPUs are idle: Slurm would resume over busy ones and overcommit them."""
        if seen.job.state is JobState.SUSPENDED and cpus_free:
            return [orders.ResumeJobs((seen.job.ref,))]
        return []
