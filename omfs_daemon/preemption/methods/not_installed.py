"""Stands for a method that is no longer installed, so that jobs it preempted run again all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omfs_daemon.cluster.preempt_methods import ENDS, MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress, PreemptMethod
from omfs_daemon.preemption.methods.ends import EndsMethod
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.preemption.methods.suspend import SuspendMethod


class NotInstalledMethod(RequeueMethod):
    """Preempts no job; lets a job run again however it was preempted."""

    traits = MethodTraits("missing", keeps_work=True, leaves=False)
    speed = MethodSpeed()

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return []

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        return PreemptionProgress.FAILED if seen.job.runs else super().progress(seen)

    def why_failed(self, seen: ObservedJob) -> str:
        return "the method is not installed"

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        return [*super().resume(seen, cpus_free), *SuspendMethod().resume(seen, cpus_free)]


_MISSING, _ENDS = NotInstalledMethod(), EndsMethod()


def method_named(methods: Mapping[str, PreemptMethod], name: str) -> PreemptMethod:
    """The method with that name, or a stand-in if it is not installed."""
    return _ENDS if name == ENDS.name else methods.get(name, _MISSING)
