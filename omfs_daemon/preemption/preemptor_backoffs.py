"""For which jobs nobody is preempted for a while, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from omfs_daemon.cluster.snapshot import PreemptedJob
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome
from omfs_daemon.preemption.realtime_memory import RealtimeMemory

_SERVED = frozenset(
    {
        PreemptionOutcome.STARTED,
        PreemptionOutcome.PREEMPTOR_GONE,
        PreemptionOutcome.PREEMPTOR_HELD,
        PreemptionOutcome.PREEMPTOR_REQUEUED,
        PreemptionOutcome.NOT_STARTED,
    }
)
"""Outcomes after which the job has started, or would have if its owner had let it. Where Slurm has not started it, its
owner may have seen to that in many ways: by a begin time, a dependency, or the limit of an array's tasks."""


class Unstarted(NamedTuple):
    """A job that Slurm does not start: its shape (``shape_of``) and Slurm's reason then. ``in_vain``: others were
    preempted for it, and none are again until one of these has changed."""

    shape: str
    reason: str
    in_vain: bool


class ShapeBackoff(NamedTuple):
    """``times``: in a row that preemptions for jobs of a shape failed, last at ``since``; none begins before ``until``.
    ``shape``: of one user's jobs (``shape_of_user``) where Slurm was only asked."""

    shape: str
    until: float
    times: int
    since: float


class NodeDoubt(NamedTuple):
    """``times``: in a row that Slurm did not start a job on a node where it seemed to fit, last at ``since``; nothing
    that requests the same is planned there before ``until``."""

    until: float
    times: int
    since: float


class ServedJob(NamedTuple):
    """A job for which others were preempted; ``at``: when it has started, or its owner has canceled, held, or
    requeued it, or Slurm has not started it."""

    user: str
    at: float


class UserBackoff(NamedTuple):
    """``brief``: when jobs of a user, for which others had been preempted, ended, or waited again, soon after their
    start or before it; for no other one are any preempted before ``until``."""

    brief: tuple[float, ...]
    until: float


@dataclass(frozen=True, slots=True)
class PreemptorBackoffs:
    """``until``: by job, when others may be preempted for it again; ``unstarted``: why Slurm does not start it.
    ``shapes``: by shape. ``served``: jobs that have started lately; ``users``: by user. ``doubts``: by what jobs
    request of nodes, and node (``shape_on_node``). ``tried``: by job, the sets of victims that were preempted for it in
    vain. ``realtime``: real-time jobs, before whose threshold none are.

    What changes it is for a copy of one's own (``StateFold``)."""

    until: dict[str, float] = field(default_factory=dict)
    unstarted: dict[str, Unstarted] = field(default_factory=dict)
    shapes: dict[str, ShapeBackoff] = field(default_factory=dict)
    served: dict[str, ServedJob] = field(default_factory=dict)
    users: dict[str, UserBackoff] = field(default_factory=dict)
    doubts: dict[str, NodeDoubt] = field(default_factory=dict)
    tried: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    realtime: RealtimeMemory = field(default_factory=RealtimeMemory)

    def copy(self) -> PreemptorBackoffs:
        return PreemptorBackoffs(
            dict(self.until),
            dict(self.unstarted),
            dict(self.shapes),
            dict(self.served),
            dict(self.users),
            dict(self.doubts),
            dict(self.tried),
            self.realtime.copy(),
        )

    def add(
        self,
        ref: str,
        until: float,
        shape: ShapeBackoff | None,
        unstarted: Unstarted | None,
        doubts: Mapping[str, NodeDoubt],
        victims: tuple[str, ...],
    ) -> None:
        self.until[ref] = until
        if unstarted is not None:
            self.unstarted[ref] = unstarted
        if shape is not None:
            self.shapes[shape.shape] = shape
        self.doubts.update(doubts)
        if victims:
            self.tried[ref] = (*self.tried.get(ref, ()), victims)

    def remove(self, refs: Iterable[str], shapes: Iterable[str] = (), doubts: Iterable[str] = ()) -> None:
        for ref in refs:
            self.until.pop(ref, None)
            self.unstarted.pop(ref, None)
        for shape in shapes:
            self.shapes.pop(shape, None)
        for key in doubts:
            self.doubts.pop(key, None)

    def forget_jobs(self, refs: Collection[str]) -> None:
        """These jobs are gone."""
        self.remove(refs)
        for ref in refs:
            self.tried.pop(ref, None)

    def note_served(self, preemption: Preemption, preempted: Mapping[str, PreemptedJob]) -> None:
        """After a preemption; urgent and real-time jobs are not watched, nor those for which no job was preempted."""
        preemptor = preemption.preemptor
        if preemption.outcome is PreemptionOutcome.STARTED:
            self.tried.pop(preemptor.ref, None)
        victims = [preempted[victim.ref] for victim in preemption.victims if victim.ref in preempted]
        is_promised = preemptor.urgent or preemption.is_for_realtime
        is_served = any(victim.preemptor == preemptor.ref for victim in victims) and not is_promised
        if is_served and preemption.outcome in _SERVED:
            self.served[preemptor.ref] = ServedJob(preemptor.user, preemption.started_at or preemption.since)

    def watch(self, refs: Iterable[str], users: Mapping[str, UserBackoff]) -> None:
        """These jobs need not be watched any longer, and these are the users with brief ones."""
        for ref in refs:
            self.served.pop(ref, None)
        self.users.clear()
        self.users.update(users)
