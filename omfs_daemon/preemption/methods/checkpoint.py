"""Stop by omfs-run inside the job: DMTCP, CRIU, or the program's own checkpoint.

USR1 to the batch shell asks for it. omfs-run writes the checkpoint, verifies it and ends with exit code 101, which
Slurm turns into a held job (RequeueExitHold): that the job waits, held, is the proof. The daemon touches no file of a
user's.
A checkpoint that fails leaves the job running; nothing here ever kills it.
"""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.protocol import reason_codes as why
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.requeue import Requeue
from omfs_daemon.slurm import orders

ASK = "USR1"

# The launcher's own table: it says which codes there are.
WHY_TEXT = why.TEXT


class Launched(Requeue):
    """One tool; on the way back it is like any job that waits, held, for its turn."""

    def __init__(self, traits: Method, pace: Pace) -> None:
        self.traits = traits
        self.pace = pace

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        """Asked again until it answers: a signal that is taken is not yet one that arrives.

        Since 24.05 a job that was submitted with --no-requeue ends for good, whatever its exit code; the checkpoint
        that it writes for us is what makes it fit to be requeued.
        """
        ready = [seen.job for seen in jobs if _state(seen) in (RunState.READY, RunState.FAILED)]
        unfit = tuple(job.ref for job in ready if not job.requeue)
        allow = [orders.AllowRequeue(unfit)] if unfit else []
        return [*allow, *(orders.Signal(job.ref, ASK, batch_only=True) for job in ready)]

    def progress(self, seen: Seen) -> Progress:
        if not seen.job.runs:
            return super().progress(seen)
        run = launched.of(seen.job)
        if run is None:
            return Progress.UNTOUCHED
        if run.state in (RunState.STOPPING, RunState.STOPPED):
            return Progress.GOING
        failed = run.state is RunState.HELD or (run.state is RunState.FAILED and run.times != seen.failed_before)
        return Progress.FAILED if failed else Progress.UNTOUCHED

    def keep_stopped(self, seen: Seen) -> list[Action]:
        """One that its owner must look at stays his to release."""
        return [] if _state(seen) is RunState.HELD else super().keep_stopped(seen)

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        """Not one that omfs-run could not restart: its owner must look at it first."""
        return [] if _state(seen) is RunState.HELD else super().bring_back(seen, cpus_free)

    def why_failed(self, seen: Seen) -> str:
        run = launched.of(seen.job)
        return WHY_TEXT.get(run.why, run.why.replace("_", " ")) if run else ""


def _state(seen: Seen) -> RunState | None:
    run = launched.of(seen.job)
    return run.state if run is not None else None
