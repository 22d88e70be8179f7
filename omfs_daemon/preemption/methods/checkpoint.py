"""Preemption by omfs-run inside the job: DMTCP, CRIU, or the application's own checkpoint.

USR1 to the batch shell requests it. omfs-run writes the checkpoint, verifies it, and exits with 101, upon which Slurm
requeues and holds the job (RequeueExitHold): that hold is the proof. The daemon touches no user's file. A checkpoint
that fails leaves the job running; nothing here ever kills it.
"""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.preemption.methods.base import Action, ObservedJob, PreemptionProgress
from omfs_daemon.preemption.methods.requeue import RequeueMethod
from omfs_daemon.protocol import reason_codes
from omfs_daemon.slurm import orders

CHECKPOINT_SIGNAL = "USR1"

WHY_TEXT = reason_codes.TEXT


class CheckpointMethod(RequeueMethod):
    """One checkpoint tool; afterwards the job is pending and held, as after a requeue."""

    def __init__(self, traits: MethodTraits, speed: MethodSpeed) -> None:
        self.traits = traits
        self.speed = speed

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        """Sent again until omfs-run reports: a signal that Slurm took may not arrive.

        Since Slurm 24.05 a job submitted with --no-requeue ends for good, whatever its exit code; the checkpoint makes
        it fit to be requeued, which is therefore allowed here.
        """
        ready = [seen.job for seen in jobs if _state(seen) in (RunState.READY, RunState.FAILED)]
        unfit = tuple(job.ref for job in ready if not job.requeue)
        allow = [orders.AllowRequeue(unfit)] if unfit else []
        return [*allow, *(orders.SendSignal(job.ref, CHECKPOINT_SIGNAL, batch_only=True) for job in ready)]

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        if not seen.job.runs:
            return super().progress(seen)
        run = run_report(seen.job)
        if run is None:
            return PreemptionProgress.UNTOUCHED
        if run.state in (RunState.STOPPING, RunState.STOPPED):
            return PreemptionProgress.GOING
        failed = run.state is RunState.HELD or (run.state is RunState.FAILED and run.times != seen.failed_before)
        return PreemptionProgress.FAILED if failed else PreemptionProgress.UNTOUCHED

    def why_failed(self, seen: ObservedJob) -> str:
        run = run_report(seen.job)
        return WHY_TEXT.get(run.why, run.why.replace("_", " ")) if run else ""


def _state(seen: ObservedJob) -> RunState | None:
    run = run_report(seen.job)
    return run.state if run is not None else None


# Measured on small machines (docs/methods.md).
DMTCP = CheckpointMethod(
    MethodTraits("dmtcp", keeps_work=True, leaves=True, launched=True, one_node=True),
    MethodSpeed(1.0, 400e6, 7.0, 400e6),
)
CRIU = CheckpointMethod(
    MethodTraits("criu", keeps_work=True, leaves=True, launched=True, one_node=True),
    MethodSpeed(0.5, 400e6, 7.0, 600e6),
)
APPLICATION = CheckpointMethod(
    MethodTraits("application", keeps_work=True, leaves=True, launched=True), MethodSpeed(5.0, 400e6, 10.0, 400e6)
)
