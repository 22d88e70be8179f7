"""Jobs that save their work when they get SIGUSR2 and requeue themselves; docs/methods.md explains it line by line."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress
from omfs_daemon.slurm import orders


class SelfRequeue:
    """Requested by ``scancel -s USR2 --batch``; a job counts as preempted when it is pending again."""

    traits = MethodTraits("self_requeue", keeps_work=True, leaves=True, launched=True)
    speed = MethodSpeed(preempt_seconds=5.0, preempt_rate=200e6, resume_seconds=10.0, resume_rate=200e6)

    def prepare(self, seen: ObservedJob) -> list[Action]:
        return [] if seen.job.requeue else [orders.AllowRequeue((seen.job.ref,))]

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [orders.SendSignal(seen.job.ref, "USR2") for seen in jobs if _state(seen.job) is RunState.READY]

    def finish(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return []

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        if seen.job.runs:
            return PreemptionProgress.GOING if _state(seen.job) is RunState.STOPPING else PreemptionProgress.UNTOUCHED
        return PreemptionProgress.GOING if seen.job.holds_cpus else PreemptionProgress.PREEMPTED

    def why_failed(self, seen: ObservedJob) -> str:
        return ""

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        return []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        return []


def _state(job: Job) -> RunState | None:
    run = run_report(job)
    return run.state if run is not None else None


METHOD = SelfRequeue()
