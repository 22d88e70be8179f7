"""How far a preemption is, as observed, and by which methods and timeouts it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.preemption.methods.base import ObservedJob, PreemptionProgress, PreemptMethod
from omfs_daemon.preemption.methods.node_work import NodeWorkStatus
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.preemption import Preemption, Preemptor, VictimState


class ObservedCluster(Protocol):
    """What is observed of the cluster now."""

    def job(self, ref: str) -> Job | None:
        """The job, or one task of an array that is pending as a whole; None if Slurm lists it no longer."""

    def work(self, ref: str) -> NodeWorkStatus | None:
        """The latest work on the job's nodes; None if this daemon has had none done."""

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could be resumed together now, in the given order."""


class MethodSettings(NamedTuple):
    """By what a preemption is carried out.

    methods           by name
    preempt_timeout   seconds that a victim may take to free its resources; preempt_timeouts: by method where it differs
    start             seconds that the preemptor may take to start
    """

    methods: Mapping[str, PreemptMethod]
    preempt_timeout: float
    start: float
    preempt_timeouts: Mapping[str, float] = {}

    def method(self, victim: VictimState) -> PreemptMethod:
        return method_named(self.methods, victim.method)

    def is_moved_in(self, preemptor: Preemptor) -> bool:
        """Whether its memory is out, so that its nodes must move it in before it is resumed."""
        return preemptor.suspended and method_named(self.methods, preemptor.method).traits.on_nodes

    def moves_in_first(self, preemption: Preemption) -> bool:
        """Whether its memory is moved in before any victim frees its CPUs, so that no other job gets them. Not
        where a victim holds the memory of a device that the preemptor needs until the end."""
        preemptor = preemption.preemptor
        has_room = not preemptor.lacks_devices or all(self.method(v).traits.on_nodes for v in preemption.victims)
        return self.is_moved_in(preemptor) and has_room

    def moving(self, preemptor: Preemptor) -> float:
        """Seconds that moving its memory in may take."""
        return self.preempt_timeouts.get(preemptor.method, self.preempt_timeout) if self.is_moved_in(preemptor) else 0.0

    def start_limit(self, preemptor: Preemptor) -> float:
        return self.start + self.moving(preemptor)

    def preempt_limit(self, victim: VictimState) -> float:
        return self.preempt_timeouts.get(victim.method, self.preempt_timeout)

    def is_careful(self, victim: VictimState) -> bool:
        """Whether preempting it is slow and may fail: then quick victims wait for it."""
        return self.method(victim).traits.is_careful

    def patience(self, preemption: Preemption) -> float:
        """Seconds until all careful victims are safe and the preemptor's memory is in, at most; 0 without any."""
        careful = max((self.preempt_limit(v) for v in preemption.victims if self.is_careful(v)), default=0.0)
        return careful + self.moving(preemption.preemptor)


def runs_still(victim: VictimState, view: ObservedCluster) -> bool:
    """Whether this run of the victim goes on; a later run must not be preempted again."""
    job = view.job(victim.ref)
    return job is not None and job.runs and job.start == victim.start


def progress_of(victim: VictimState, view: ObservedCluster, method_settings: MethodSettings) -> PreemptionProgress:
    """How far it is; a job that is gone, or is in a later run, has freed its resources."""
    job = view.job(victim.ref)
    if job is None or (job.start is not None and job.start != victim.start and job.runs):
        return PreemptionProgress.PREEMPTED
    return method_settings.method(victim).progress(seen_of(victim, job, view))


def seen_of(victim: VictimState, job: Job, view: ObservedCluster) -> ObservedJob:
    return ObservedJob(job, view.work(job.ref), victim.keeps, victim.failed_before)
