"""The interface of preemption methods, and the base of those that need one order of Slurm's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWorkStatus
from omfs_daemon.slurm.orders import Order


class PreemptionProgress(StrEnum):
    """How far the preemption of one job is.

    UNTOUCHED  it runs, and nothing has been done to it: it can still be spared
    GOING      it is being preempted
    SECURED    its work is safe and it computes no longer, but Slurm still counts it as running: one order is missing
    PREEMPTED  it has freed its CPUs, and its work is as safe as the method makes it
    FAILED     it could not be preempted, and runs on (or will, once it is resumed)
    """

    UNTOUCHED = "untouched"
    GOING = "going"
    SECURED = "secured"
    PREEMPTED = "preempted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """An order to omfs-node on all nodes of a job; ``resume`` as in ``NodeWork``."""

    ref: str
    method: str
    do: NodeAction
    resume: bool = False


Action = Order | NodeOrder

Licenses = tuple[tuple[str, int], ...]


class ObservedJob(NamedTuple):
    """One job as Slurm shows it now.

    work           the latest work on its nodes, as far as this daemon knows
    failed_before  how many failures omfs-run had reported when this preemption began
    warning        the signal that warns it before it is requeued, ``[B:]NAME``; "": none
    """

    job: Job
    work: NodeWorkStatus | None = None
    failed_before: int = 0
    warning: str = ""


class PreemptMethod(Protocol):
    """One method of preempting jobs.

    Its orders are transitions: requeue, suspend, resume, signals, work on nodes. Marks, holds, and licenses of its jobs
    are set for it: a job that waits for its turn is held, one that runs or is suspended is marked.
    """

    traits: MethodTraits
    speed: MethodSpeed

    def prepare(self, seen: ObservedJob) -> list[Action]:
        """Orders needed before the running job is preempted; it runs on meanwhile."""

    def preempt(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        """Orders missing until these running jobs are SECURED or PREEMPTED."""

    def finish(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        """Orders that make SECURED jobs PREEMPTED: sent when all victims of the preemption are as far."""

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        """How far it is. PREEMPTED is a proof, not a hope."""

    def why_failed(self, seen: ObservedJob) -> str:
        """Why it FAILED, in one line."""

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        """Orders missing until only we can resume, restart, or requeue the job before its turn."""

    def resume(self, seen: ObservedJob, cpus_free: bool) -> list[Action]:
        """Orders that let a job run again that was preempted, wholly or in part; [] when none is missing.

        ``cpus_free``: whether the CPUs of a suspended job are idle.
        """


class SingleOrderMethod:
    """Nothing to prepare, nothing to finish; a job is PREEMPTED when it has freed its CPUs."""

    def prepare(self, seen: ObservedJob) -> list[Action]:
        return []

    def finish(self, jobs: Sequence[ObservedJob]) -> list[Action]:
        return []

    def progress(self, seen: ObservedJob) -> PreemptionProgress:
        if seen.job.runs:
            return PreemptionProgress.UNTOUCHED
        return PreemptionProgress.GOING if seen.job.holds_cpus else PreemptionProgress.PREEMPTED

    def why_failed(self, seen: ObservedJob) -> str:
        return ""

    def keep_preempted(self, seen: ObservedJob) -> list[Action]:
        return []
