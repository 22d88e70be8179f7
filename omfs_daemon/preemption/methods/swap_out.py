"""Preemption by omfs-node on the job's nodes: page-out, and swap-out of vector engines.

The job's processes are stopped, and their memory is moved out and verified, *while Slurm still counts the job as
running*, so that no other job gets its CPUs before its memory is free. Then its licenses (docs/node-licenses.md) are
removed, which Slurm refuses for a suspended job, and it is suspended, which starts the preemptor. To resume it, its
memory is moved in while it is suspended, and Slurm's resume continues its processes.
"""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import DEVICES, MEMORY, MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.base import Action, NodeOrder, ObservedJob, PreemptionProgress, SingleOrderMethod
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWorkState, NodeWorkStatus
from omfs_daemon.slurm import orders


class SwapOutMethod(SingleOrderMethod):
    """One mover of memory."""

    def __init__(self, traits: MethodTraits, speed: MethodSpeed) -> None:
        self.traits = traits
        self.speed = speed

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [NodeOrder(seen.job.ref, self.traits.name, NodeAction.OUT) for seen in jobs if seen.job.runs]

    def finish(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return [orders.SuspendJobs(tuple(seen.job.ref for seen in jobs))] if jobs else []

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        """A job that is suspended was SECURED before; after a crash, nodes are asked whether its memory is out."""
        if seen.job.state is JobState.SUSPENDED:
            return PreemptionProgress.PREEMPTED
        if not seen.job.runs:
            return super().progress(seen)
        work = seen.work
        if work is None or work.do is not NodeAction.OUT or work.method != self.traits.name:
            return PreemptionProgress.UNTOUCHED
        match work.state:
            case NodeWorkState.DONE:
                return PreemptionProgress.SECURED
            case NodeWorkState.FAILED:
                return PreemptionProgress.FAILED
        return PreemptionProgress.GOING

    def why_failed(self, seen: ObservedJob) -> str:
        return seen.work.message if seen.work is not None else ""

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        """Memory moved in for a turn that did not come is moved out again: others may need the room."""
        work = seen.work
        if seen.job.state is JobState.SUSPENDED and work is not None and work.do is NodeAction.IN:
            return [NodeOrder(seen.job.ref, self.traits.name, NodeAction.OUT)]
        return []

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        """A job that was never suspended is continued at once: its preemption was not finished."""
        job = seen.job
        if job.runs:
            # Slurm's own SIGCONT may be lost (its slurmd was away): the processes are continued once more.
            is_continued = _is_in(seen.work) and seen.work is not None and seen.work.resume
            return [] if is_continued else [NodeOrder(job.ref, self.traits.name, NodeAction.IN, resume=True)]
        if job.state is not JobState.SUSPENDED or not cpus_free:
            return []
        return [
            orders.ResumeJobs((job.ref,)) if _is_in(seen.work) else NodeOrder(job.ref, self.traits.name, NodeAction.IN)
        ]


def _is_in(work: NodeWorkStatus | None) -> bool:
    return work is not None and work.do is NodeAction.IN and work.state is NodeWorkState.DONE


# Measured on small machines (docs/methods.md).
PAGEOUT = SwapOutMethod(
    MethodTraits("pageout", keeps_work=True, leaves=False, frees=frozenset({MEMORY}), on_nodes=True),
    MethodSpeed(0.3, 1.0e9, 0.3, 0.3e9),
)
VE_SWAP = SwapOutMethod(
    MethodTraits("ve_swap", keeps_work=True, leaves=False, frees=frozenset({DEVICES}), on_nodes=True),
    MethodSpeed(0.3, 6.0e9, 0.3, 6.0e9),
)
