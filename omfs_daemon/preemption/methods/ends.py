"""Stands for letting a job run to its end, where that is foreseen to be sooner than other victims let go."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.preempt_methods import ENDS
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress
from omfs_daemon.preemption.methods.requeue import RequeueMethod


class EndsMethod(RequeueMethod):
    """Does nothing to the job, whose resources count as being freed. Quick victims wait for its end."""

    traits = ENDS

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return []

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        return PreemptionProgress.GOING if seen.job.holds_cpus else PreemptionProgress.PREEMPTED
