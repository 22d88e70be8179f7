"""Stop by omfs-node on the job's nodes: page-out, and swapping of vector engines.

Its processes are stopped and their memory is moved out and verified *while the job still runs in Slurm's eyes*, so that
nobody is given its CPUs before its memory is free. Then its licences (docs/books.md) are taken off, which Slurm refuses
for a suspended job, and it is suspended, which starts the beneficiary. On the way back its memory is moved in while it
is suspended, and Slurm's resume lets its processes go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import OnNodes
from omfs_daemon.preemption.methods.base import Progress
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.base import Plain
from omfs_daemon.preemption.methods.node_work import Do
from omfs_daemon.preemption.methods.node_work import WorkSeen
from omfs_daemon.preemption.methods.node_work import WorkState
from omfs_daemon.slurm import orders


class OnJobsNodes(Plain):
    """One way of moving memory out."""

    def __init__(self, traits: Method, pace: Pace) -> None:
        self.traits = traits
        self.pace = pace

    def stop(self, jobs: Sequence[Seen]) -> list[Action]:
        return [OnNodes(seen.job.ref, self.traits.name, Do.OUT) for seen in jobs if seen.job.runs]

    def finish(self, jobs: Sequence[Seen]) -> list[Action]:
        strip: list[Action] = [
            orders.SetLicenses((seen.job.ref,), seen.keeps)
            for seen in jobs
            if seen.keeps is not None and seen.job.licenses != seen.keeps
        ]
        return [*strip, orders.Suspend(tuple(seen.job.ref for seen in jobs))] if jobs else []

    def progress(self, seen: Seen) -> Progress:
        """A job that is suspended was secured before; whether its memory is out is asked again after a crash."""
        if seen.job.state is JobState.SUSPENDED:
            return Progress.STOPPED
        if not seen.job.runs:
            return super().progress(seen)
        work = seen.work
        if work is None or work.do is not Do.OUT or work.method != self.traits.name:
            return Progress.UNTOUCHED
        match work.state:
            case WorkState.DONE:
                return Progress.SECURED
            case WorkState.FAILED:
                return Progress.FAILED
        return Progress.GOING

    def why_failed(self, seen: Seen) -> str:
        return seen.work.message if seen.work is not None else ""

    def keep_stopped(self, seen: Seen) -> list[Action]:
        """Moved in for a turn that did not come, it is to be moved out again: others may need the room."""
        work = seen.work
        if seen.job.state is JobState.SUSPENDED and work is not None and work.do is Do.IN:
            return [OnNodes(seen.job.ref, self.traits.name, Do.OUT)]
        return []

    def bring_back(self, seen: Seen, cpus_free: bool) -> list[Action]:
        """A job that was never suspended is let go on at once; its stop was not finished."""
        job = seen.job
        if job.runs:
            # Slurm's own SIGCONT may be lost (its slurmd was away): they are let go on once more.
            is_let_go = _is_in(seen.work) and seen.work is not None and seen.work.resume
            return [] if is_let_go else [OnNodes(job.ref, self.traits.name, Do.IN, resume=True)]
        if job.state is not JobState.SUSPENDED or not cpus_free:
            return []
        return [orders.Resume((job.ref,)) if _is_in(seen.work) else OnNodes(job.ref, self.traits.name, Do.IN)]


def _is_in(work: WorkSeen | None) -> bool:
    return work is not None and work.do is Do.IN and work.state is WorkState.DONE
