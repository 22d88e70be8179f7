"""By which methods a running job can be preempted now, and what each would cost.

The job's class (``classify``) lists what its owner and the site allow; of these, only methods that the job and its
nodes support at present are available.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import MethodSpeed, MethodTraits, PreemptionCost
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.cluster.snapshot import NodeRoom
from omfs_daemon.policy.rules.classes import JobClass, Rules
from omfs_daemon.policy.victims.remaining_times import RemainingTimes


class WhyUnavailable(StrEnum):
    """Why a job cannot be preempted by a method now; ``WHY_NOT_TEXT`` explains each."""

    UNKNOWN = "unknown_method"
    NOT_READY = "not_ready"
    CANNOT_RESTART = "cannot_restart"
    NODE_CANNOT = "node_cannot"
    NO_ROOM = "no_room"
    ENDS_SOONER = "ends_sooner"
    JUST_RESUMED = "just_resumed"
    SIZE_UNKNOWN = "size_unknown"


WHY_NOT_TEXT: Mapping[WhyUnavailable, str] = {
    WhyUnavailable.UNKNOWN: "this method is not installed",
    WhyUnavailable.NOT_READY: "omfs-run in the job has not reported that it is ready",
    WhyUnavailable.CANNOT_RESTART: "the job could not be restarted from its checkpoints",
    WhyUnavailable.NODE_CANNOT: "one of its nodes does not support it",
    WhyUnavailable.NO_ROOM: "there is no room to move its memory to",
    WhyUnavailable.ENDS_SOONER: "the job ends before this would finish",
    WhyUnavailable.SIZE_UNKNOWN: "its memory has not been measured yet",
    WhyUnavailable.JUST_RESUMED: "it has just been resumed, and Slurm may not have finished that",
}


SETTLES = 5.0
"""Seconds after a resume within which Slurm's own SIGCONT may still arrive (docs/page-out.md); it would continue a job
that was suspended again meanwhile."""


class MethodOption(NamedTuple):
    """A method with its estimated cost in seconds; ``why_not``: why it cannot be used now, or None."""

    method: str
    cost: PreemptionCost
    why_not: WhyUnavailable | None


class MethodAvailability:
    """The methods available for the jobs of one snapshot; counts the room that decisions take on nodes."""

    def __init__(
        self,
        rules: Rules,
        facts: Mapping[str, NodeRoom],
        sizes: Mapping[tuple[int, str], int],
        just_resumed: Collection[str] = (),
        remaining: RemainingTimes | None = None,
    ) -> None:
        self._rules, self._facts, self._sizes, self._just_resumed = rules, facts, sizes, just_resumed
        self.remaining = RemainingTimes({}) if remaining is None else remaining
        self._taken: dict[tuple[str, str], int] = {}

    def usable(self, job: Job, job_class: JobClass) -> tuple[str, ...]:
        """The methods by which the job can be preempted now, cheapest first, equals in the owner's order.

        Without any that makes it leave its nodes, the class's last resort is the last one. But a job that ends before
        its work could be saved does not lose that work.
        """
        options = self.all(job, job_class)
        is_ending = any(option.why_not is WhyUnavailable.ENDS_SOONER for option in options)
        usable = [option for option in options if option.why_not is None and not (is_ending and option.cost.lost)]
        if len(usable) > 1:
            usable.sort(key=lambda option: option.cost.total)
        found = tuple(option.method for option in usable)
        return found if is_ending or not job_class.methods else self.with_last_resort(found, job_class)

    def with_last_resort(self, names: tuple[str, ...], job_class: JobClass) -> tuple[str, ...]:
        """Behind methods after which the job stays on its nodes comes the class's last resort: what the job keeps
        there may be what is needed, such as its memory."""
        is_needed = job_class.last_resort and not any(self._rules.method(name).leaves for name in names)
        return (*names, job_class.last_resort) if is_needed else names

    def is_always_usable(self, name: str) -> bool:
        """Whether every job to which this method is allowed can be preempted by it at any time."""
        method = self._rules.methods.get(name)
        return method is not None and not (method.launched or method.on_nodes or self.takes_time(name))

    def takes_time(self, name: str) -> bool:
        return self._rules.speeds.get(name, MethodSpeed()) != MethodSpeed()

    def all(self, job: Job, job_class: JobClass) -> list[MethodOption]:
        """Every method of the job's class, in the owner's order."""
        return [MethodOption(name, self.cost(job, name), self.why_not(job, name)) for name in job_class.methods]

    def why_not(self, job: Job, name: str) -> WhyUnavailable | None:
        method = self._rules.methods.get(name)
        if method is None:
            return WhyUnavailable.UNKNOWN
        if method.launched:
            why_not = _why_not_launched(job, name)
        else:
            why_not = self._why_not_on_nodes(job, method) if method.on_nodes else None
        if why_not is None and self._ends_sooner(job, method):
            return WhyUnavailable.ENDS_SOONER
        return why_not

    def _ends_sooner(self, job: Job, method: MethodTraits) -> bool:
        """Whether the job's time is up before it would have let go. One that Slurm lets run beyond its time limit
        (OverTimeLimit) can be preempted, but its work may not be saved in time."""
        remaining = self.remaining.longest(job)
        saves = method.keeps_work and method.leaves
        return (saves or remaining > 0) and remaining <= self.cost(job, method.name).preempt

    def cost(self, job: Job, method: str) -> PreemptionCost:
        return self._rules.cost(method, job, self.size(job, method))

    def size(self, job: Job, method: str) -> int:
        """Bytes on one of its nodes: as measured, else as requested."""
        measured = self._sizes.get((job.id, method))
        return (
            measured if measured is not None else max((allocation.memory for allocation in job.allocations), default=0)
        )

    def _why_not_on_nodes(self, job: Job, method: MethodTraits) -> WhyUnavailable | None:
        if job.ref in self._just_resumed:
            return WhyUnavailable.JUST_RESUMED
        rooms = [self._room(node, method.name) for node in job.on_nodes]
        if not rooms or any(room is None for room in rooms):
            return WhyUnavailable.NODE_CANNOT
        size = self.size(job, method.name)
        if not size and (job.id, method.name) not in self._sizes:
            return WhyUnavailable.SIZE_UNKNOWN
        return WhyUnavailable.NO_ROOM if any(room is not None and room < size for room in rooms) else None

    def _room(self, node: str, method: str) -> int | None:
        """Bytes that can still be moved out on a node; None if the method cannot be used there."""
        facts = self._facts.get(node)
        if facts is None or method not in facts.room:
            return None
        return facts.room[method] - self._taken.get((node, method), 0)

    # -- room for several jobs ----------------------------------------------------------------------------------
    def fit_together(self, victims: Sequence[tuple[Job, str]]) -> bool:
        """Whether there is room for all of these at once."""
        wanted = self._wanted(victims)
        return all(room is not None and room >= 0 for room in (self._left(key, wanted) for key in wanted))

    def take(self, victims: Iterable[tuple[Job, str]]) -> None:
        """These are being preempted: what they move out counts as taken."""
        for key, size in self._wanted(victims).items():
            self._taken[key] = self._taken.get(key, 0) + size

    def _left(self, key: tuple[str, str], wanted: Mapping[tuple[str, str], int]) -> int | None:
        room = self._room(*key)
        return None if room is None else room - wanted[key]

    def _wanted(self, victims: Iterable[tuple[Job, str]]) -> dict[tuple[str, str], int]:
        wanted: dict[tuple[str, str], int] = {}
        for job, name in victims:
            method = self._rules.methods.get(name)
            if method is not None and method.on_nodes:
                size = self.size(job, name)
                for node in job.on_nodes:
                    wanted[node, name] = wanted.get((node, name), 0) + size
        return wanted


def _why_not_launched(job: Job, name: str) -> WhyUnavailable | None:
    """A signal that the job does not handle would end it, so omfs-run must have reported in this run that it does."""
    run = run_report(job)
    if run is None or run.method != name:
        return WhyUnavailable.NOT_READY
    if run.state is RunState.HELD:
        return WhyUnavailable.CANNOT_RESTART
    failed_in_vain = run.state is RunState.FAILED and not run.times  # the method cannot be used in this run
    return None if run.state in (RunState.READY, RunState.FAILED) and not failed_in_vain else WhyUnavailable.NOT_READY
