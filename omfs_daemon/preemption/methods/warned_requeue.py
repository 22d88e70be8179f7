"""Preemption by requeue with a warning first: a signal, upon which the job ends or requeues itself.

For programs that save their work on a signal, as those of submitit do. The job is held while it runs, so that it comes
back held, whoever requeues it. The hold is also the proof that the signal was sent: it follows in the same chain of
orders, and is sent once, because a program that is saving its work may not survive a second one. A job that stays for
longer than the method may take is requeued without further ado (``preemption/next_step.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omfs_daemon.cluster.holds import admin_comment_of
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.protocol.job_comment import BATCH_ONLY
from omfs_daemon.slurm import orders

_HELD_SINCE = (MarkWord.HELD, MarkWord.ADMIN_HELD, MarkWord.ADMIN_RELEASED)


class WarnedRequeueMethod(RequeueMethod):
    """``requeue`` for a job with a signal: quick victims wait until it has left."""

    traits = replace(RequeueMethod.traits, slow=True)

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [
            orders.SendSignal(
                seen.job.ref, seen.warning.removeprefix(BATCH_ONLY), batch_only=seen.warning.startswith(BATCH_ONLY)
            )
            for seen in jobs
        ]

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        if seen.job.runs and _is_warned(seen.job):
            return PreemptionProgress.GOING
        return super().progress(seen)


def _is_warned(job: Job) -> bool:
    """Whether we have held it while it runs. An administrator may have released it since; a job that one holds is not
    held by us, and never warned."""
    return admin_comment_of(job).word in _HELD_SINCE


WARNED_REQUEUE = WarnedRequeueMethod()
