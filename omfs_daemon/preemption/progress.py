"""How far a preemption is, as observed, and by which methods and timeouts it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Allocation, Job
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.preemption.methods.base import ObservedJob, PreemptionProgress, PreemptMethod
from omfs_daemon.preemption.methods.node_work import NodeAction, NodeWorkState, NodeWorkStatus
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.methods.warned_requeue import WARNED_REQUEUE
from omfs_daemon.preemption.preemption import Preemption, Preemptor, Step, VictimState


class ObservedCluster(Protocol):
    """What is observed of the cluster now."""

    def job(self, ref: str) -> Job | None:
        """The job, or one task of an array that is pending as a whole; None if Slurm lists it no longer."""

    @property
    def answers(self) -> Mapping[int, str]:
        """Slurm's to the questions of preemptions, as ``put_question`` gives them; "" if one could not be asked."""

    def node(self, name: str) -> Node | None:
        """The node; None if Slurm does not list it."""

    def partition(self, name: str) -> Partition | None:
        """The partition; None if Slurm does not list it."""

    def ended(self, ref: str) -> Job | None:
        """A preemptor that is no longer listed, as far as Slurm remembers it."""

    def work(self, ref: str) -> NodeWorkStatus | None:
        """The latest work on the job's nodes; None if this daemon has had none done."""

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could be resumed together now, in the given order."""

    def taken_by(
        self, allocations: Sequence[Allocation], leaving: Sequence[Job], since: float, until: float = inf
    ) -> list[str]:
        """Jobs that have started since then, no later than ``until``, and have CPUs that these allocations lack once
        ``leaving`` have left."""

    def in_the_way(self, job: Job) -> set[str]:
        """Jobs that have CPUs or devices of this suspended job now, or may have some."""


class MethodSettings(NamedTuple):
    """By what a preemption is carried out.

    methods           by name
    preempt_timeout   seconds that a victim may take to free its resources; preempt_timeouts: by method where it differs
    start             seconds that the preemptor may take to start
    proof             seconds that Slurm may take to say why a preemptor waits
    """

    methods: Mapping[str, PreemptMethod]
    preempt_timeout: float
    start: float
    preempt_timeouts: Mapping[str, float] = {}
    proof: float = 1.5

    def method(self, victim: VictimState) -> PreemptMethod:
        if victim.warning:
            return WARNED_REQUEUE
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
        if victim.ends_by_itself:  # by its time limit or a prediction, no later than the slowest one lets go
            return max((self.preempt_timeout, *self.preempt_timeouts.values()))
        return self.preempt_timeouts.get(victim.method, self.preempt_timeout)

    def is_held_first(self, victim: VictimState) -> bool:
        """Whether it is held while it runs, right before it is preempted: so it returns to the queue held. What its own
        script does takes longer."""
        traits = self.method(victim).traits
        return traits.leaves and not traits.launched

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


def is_in_later_run(victim: VictimState, job: Job) -> bool:
    return job.runs and job.start is not None and job.start != victim.start


def progress_of(victim: VictimState, view: ObservedCluster, method_settings: MethodSettings) -> PreemptionProgress:
    """How far it is; a job that is gone, or is in a later run, has freed its resources."""
    job = view.job(victim.ref)
    if job is None or is_in_later_run(victim, job):
        return PreemptionProgress.PREEMPTED
    return method_settings.method(victim).progress(seen_of(victim, job, view))


class DueVictims(NamedTuple):
    """Which victims are to be preempted now, and which are to be finished, because the work of all is safe.

    ``waits``: they are not, because the preemptor's memory is moved in first.
    """

    preempt: tuple[VictimState, ...] = ()
    finish: tuple[VictimState, ...] = ()
    waits: bool = False


def due_victims(preemption: Preemption, view: ObservedCluster, method_settings: MethodSettings) -> DueVictims:
    """Careful victims first. Only when their work is safe do they free their CPUs, and are the quick ones preempted: no
    job loses work for a preemption that fails halfway, and all CPUs become free at once."""
    if preemption.step is not Step.STOPPING:
        return DueVictims()
    found = [victim for victim in preemption.victims if view.job(victim.ref) is not None]
    far = {victim.ref: progress_of(victim, view, method_settings) for victim in found}
    is_safe = all(far[victim.ref] in SAFE for victim in found if method_settings.is_careful(victim))
    if is_safe and method_settings.moves_in_first(preemption) and moving_in(preemption, view) is not NodeWorkState.DONE:
        return DueVictims(waits=True)
    untouched = [victim for victim in found if far[victim.ref] is PreemptionProgress.UNTOUCHED]
    secured = [victim for victim in found if far[victim.ref] is PreemptionProgress.SECURED]
    return DueVictims(
        tuple(victim for victim in untouched if is_safe or method_settings.is_careful(victim)),
        tuple(secured if is_safe else ()),
    )


SAFE = (PreemptionProgress.SECURED, PreemptionProgress.PREEMPTED)


def moving_in(preemption: Preemption, view: ObservedCluster) -> NodeWorkState | None:
    """The state of moving the preemptor's memory in; None if that has not begun."""
    work = view.work(preemption.preemptor.ref)
    return work.state if work is not None and work.do is NodeAction.IN else None


def seen_of(victim: VictimState, job: Job, view: ObservedCluster) -> ObservedJob:
    return ObservedJob(job, view.work(job.ref), victim.failed_before, victim.warning)
