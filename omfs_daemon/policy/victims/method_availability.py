"""In which ways a running job can be stopped now, and what each would cost: the cheapest first.

What the owner allows and its class permits stands in its class (``rules.classify``); here it is cut down to what the
job and its nodes can do at present.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.run_report import RunState
from omfs_daemon.cluster.preempt_methods import Cost
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.snapshot import NodeFacts
from omfs_daemon.policy.rules.classes import JobClass
from omfs_daemon.policy.rules.classes import Rules


class WhyNot(StrEnum):
    """Why a job cannot be stopped by a method now. ``WHY_NOT_TEXT`` holds the words for people."""

    UNKNOWN = "unknown_method"
    NOT_READY = "not_ready"
    CANNOT_RESTART = "cannot_restart"
    NODE_CANNOT = "node_cannot"
    NO_ROOM = "no_room"
    ENDS_SOONER = "ends_sooner"
    JUST_BACK = "just_back"
    SIZE_UNKNOWN = "size_unknown"


WHY_NOT_TEXT: Mapping[WhyNot, str] = {
    WhyNot.UNKNOWN: "no such method is installed",
    WhyNot.NOT_READY: "omfs-run in the job has not said that it is ready",
    WhyNot.CANNOT_RESTART: "the job could not be restarted from its checkpoints",
    WhyNot.NODE_CANNOT: "one of its nodes cannot do it",
    WhyNot.NO_ROOM: "there is no room to move its memory to",
    WhyNot.ENDS_SOONER: "it ends sooner than that would take",
    WhyNot.SIZE_UNKNOWN: "how much memory it has was not looked at yet",
    WhyNot.JUST_BACK: "it has just been resumed, and Slurm may not be through with that",
}


SETTLES = 5.0
"""Seconds after a resume in which Slurm's own SIGCONT may still come (docs/page-out.md): it would wake a job that was
stopped again meanwhile."""


class Way(NamedTuple):
    """A method with its estimated cost in seconds, and why it cannot be used, if so."""

    method: str
    cost: Cost
    why_not: WhyNot | None


class Ways:
    """Of the jobs of one snapshot; keeps count of the room that is taken by what is decided."""

    def __init__(
        self,
        rules: Rules,
        facts: Mapping[str, NodeFacts],
        sizes: Mapping[tuple[int, str], int],
        just_back: Collection[str] = (),
    ) -> None:
        self._rules, self._facts, self._sizes, self._just_back = rules, facts, sizes, just_back
        self._taken: dict[tuple[str, str], int] = {}

    def usable(self, job: Job, job_class: JobClass) -> tuple[str, ...]:
        """The methods by which the job can be stopped now, cheapest first, equals as its owner lists them.

        Where none is left, what the class allows as the last resort: it stands for stops that fail. But nobody's work
        is thrown away in less time before its end than saving it would take.
        """
        every = self.all(job, job_class)
        is_ending = any(way.why_not is WhyNot.ENDS_SOONER for way in every)
        ways = [way for way in every if way.why_not is None and not (is_ending and way.cost.lost)]
        if len(ways) > 1:
            ways.sort(key=lambda way: way.cost.total)
        if ways or is_ending or not job_class.methods:
            return tuple(way.method for way in ways)
        return (job_class.last_resort,) if job_class.last_resort else ()

    def all(self, job: Job, job_class: JobClass) -> list[Way]:
        """Every method of the job's class, in its order."""
        return [Way(name, self.cost(job, name), self.why_not(job, name)) for name in job_class.methods]

    def why_not(self, job: Job, name: str) -> WhyNot | None:
        method = self._rules.methods.get(name)
        if method is None:
            return WhyNot.UNKNOWN
        if method.launched:
            why_not = _why_not_launched(job, name)
        else:
            why_not = self._why_not_on_nodes(job, method) if method.on_nodes else None
        if why_not is None and method.keeps_work and method.leaves:
            return WhyNot.ENDS_SOONER if job.remaining() <= self.cost(job, name).stop else None
        return why_not

    def cost(self, job: Job, method: str) -> Cost:
        return self._rules.cost(method, job, self.size(job, method))

    def size(self, job: Job, method: str) -> int:
        """Bytes on one of its nodes: as looked at, else what it asked for."""
        looked_at = self._sizes.get((job.id, method))
        return looked_at if looked_at is not None else max((share.memory for share in job.shares), default=0)

    def _why_not_on_nodes(self, job: Job, method: Method) -> WhyNot | None:
        if job.ref in self._just_back:
            return WhyNot.JUST_BACK
        rooms = [self._room(node, method.name) for node in job.on_nodes]
        if not rooms or any(room is None for room in rooms):
            return WhyNot.NODE_CANNOT
        size = self.size(job, method.name)
        if not size and (job.id, method.name) not in self._sizes:
            return WhyNot.SIZE_UNKNOWN
        return WhyNot.NO_ROOM if any(room is not None and room < size for room in rooms) else None

    def _room(self, node: str, method: str) -> int | None:
        """Bytes that can still be moved out on a node; None if the method cannot be used there."""
        facts = self._facts.get(node)
        if facts is None or method not in facts.room:
            return None
        return facts.room[method] - self._taken.get((node, method), 0)

    # -- the room of several ------------------------------------------------------------------------------------
    def fit_together(self, stopped: Sequence[tuple[Job, str]]) -> bool:
        """Whether there is room for all of these at once."""
        wanted = self._wanted(stopped)
        return all(room is not None and room >= 0 for room in (self._left(key, wanted) for key in wanted))

    def take(self, stopped: Iterable[tuple[Job, str]]) -> None:
        """These are being stopped: what they move out counts as there."""
        for key, size in self._wanted(stopped).items():
            self._taken[key] = self._taken.get(key, 0) + size

    def _left(self, key: tuple[str, str], wanted: Mapping[tuple[str, str], int]) -> int | None:
        room = self._room(*key)
        return None if room is None else room - wanted[key]

    def _wanted(self, stopped: Iterable[tuple[Job, str]]) -> dict[tuple[str, str], int]:
        wanted: dict[tuple[str, str], int] = {}
        for job, name in stopped:
            method = self._rules.methods.get(name)
            if method is not None and method.on_nodes:
                size = self.size(job, name)
                for node in job.on_nodes:
                    wanted[node, name] = wanted.get((node, name), 0) + size
        return wanted


def _why_not_launched(job: Job, name: str) -> WhyNot | None:
    """A signal that the job does not catch would end it, so it must have said that it does, in this very run."""
    run = launched.of(job)
    if run is None or run.method != name:
        return WhyNot.NOT_READY
    if run.state is RunState.HELD:
        return WhyNot.CANNOT_RESTART
    failed_in_vain = run.state is RunState.FAILED and not run.times  # the method itself cannot be used in this run
    return None if run.state in (RunState.READY, RunState.FAILED) and not failed_in_vain else WhyNot.NOT_READY
