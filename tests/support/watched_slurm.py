"""The fake Slurm that knows who does what: whose hold each job has, and what must never be done to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from omfs_daemon.cluster.jobs import Hold, JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import REQUEUED_HELD, Record
from omfs_daemon.testing.fake_slurm.fake_nodes import Placement, place_job
from omfs_daemon.testing.fake_slurm.people import Actor
from omfs_daemon.testing.fake_slurm.restarts import SavedState
from tests.support.fake_omfs_node import SlurmOnNodes

DAEMON, GATE, SLURM = "omfsd", "the submit gate", "Slurm"
PEOPLE = frozenset(Actor)
ADMINISTRATORS = (Actor.ROOT, Actor.OPERATOR)
SAVES = 12
"""States that are kept for a restart of slurmctld."""


class WatchedSlurm(SlurmOnNodes):
    """``holders`` and ``suspenders``: who holds and has suspended jobs, by raw id; ``released``: jobs of which an
    administrator has ended our hold, until they start; ``changed``: jobs of which somebody has set nice or nodes;
    ``resumed``: jobs that people have resumed; ``exits``: how many jobs have ended themselves after a checkpoint; those
    that omfsd has not observed are not forgotten: nobody would know. ``unobserved``: when omfsd has released jobs,
    until it observes that; ``in_doubt``: jobs that an Operator or their owners have held meanwhile, which omfsd cannot
    tell (docs/guarantees.md). ``wrongs``: what must not have happened;
    ``progress``: starts and resumes, with their times, by raw id."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.actor: str = DAEMON
        self.holders: dict[int, str] = {}
        self.suspenders: dict[int, str] = {}
        self.released: set[int] = set()
        self.resumed: set[int] = set()
        self.changed: set[int] = set()
        self.wrongs: list[str] = []
        self.progress: dict[int, list[float]] = {}
        self.forgotten: set[int] = set()
        self.exits = self.observed_exits = 0
        self.unobserved: dict[int, float] = {}
        self.in_doubt: set[int] = set()
        self._saves: deque[tuple[SavedState, dict[int, str], dict[int, str]]] = deque(maxlen=SAVES)
        super().__init__(*arguments, **options)

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        before, self.actor = self.actor, actor
        try:
            yield
        finally:
            self.actor = before

    def catch_up(self) -> None:
        with self.acting(SLURM):
            super().catch_up()

    # -- who holds -----------------------------------------------------------------------------------------------
    def set_hold(self, record: Record, hold: Hold) -> None:
        was_held, holder = record.hold is not Hold.NONE, self.holders.get(record.id)
        by_person = holder in PEOPLE and was_held and record.state is not JobState.SUSPENDED
        super().set_hold(record, hold)
        if self.actor == DAEMON and by_person and self.plugin and record.id not in self.in_doubt:
            verb = "releases" if hold is Hold.NONE else "holds"
            self._wrong(record, f"omfsd {verb} it, although {holder} holds it")
        if hold is not Hold.NONE:
            if self.actor == DAEMON and record.id in self.released and record.state is JobState.PENDING and self.plugin:
                self._wrong(record, "omfsd holds it again after an administrator released it")
            if not (self.actor == DAEMON and by_person):
                self.holders[record.id] = self.actor
            self.released.discard(record.id)
            if self.actor in (Actor.OPERATOR, Actor.OWNER) and record.id in self.unobserved:
                self.in_doubt.add(record.id)
            return
        self.in_doubt.discard(record.id)
        if self.actor == DAEMON:
            self.unobserved[record.id] = self.now
        self.holders.pop(record.id, None)
        if was_held and holder in (DAEMON, GATE) and self.actor in ADMINISTRATORS:
            self.released.add(record.id)

    def hold_at_gate(self, record: Record) -> None:
        with self.acting(GATE):
            super().hold_at_gate(record)

    def holder(self, record_id: int) -> str:
        return self.holders.get(record_id, SLURM)

    def split(self, record: Record, task: int) -> Record:
        found = super().split(record, task)
        for known in (self.holders, self.suspenders):
            if record.id in known:
                known.setdefault(found.id, known[record.id])
        for ids in (self.released, self.changed):
            if record.id in ids:
                ids.add(found.id)
        return found

    def _start(self, record: Record, partition: str, placements: Sequence[Placement]) -> None:
        super()._start(record, partition, placements)
        for job in list(self._running.values()):
            if job.history.starts and job.history.starts[-1] == self.now:
                self.released.discard(job.id)

    # -- transitions -----------------------------------------------------------------------------------------------
    def suspend(self, record: Record) -> None:
        super().suspend(record)
        self.suspenders[record.id] = self.actor
        if self.actor != DAEMON:
            self.saved_now()
        if self.holders.get(record.id) not in PEOPLE:
            self.holders[record.id] = self.actor

    def resume(self, record: Record) -> None:
        """Slurm forgets a hold of a suspended job."""
        if self.actor == DAEMON and self.suspenders.get(record.id) in PEOPLE:
            self._wrong(record, f"omfsd resumes it, although {self.suspenders[record.id]} has suspended it")
        super().resume(record)
        self.holders.pop(record.id, None)
        self.suspenders.pop(record.id, None)
        self.progress.setdefault(record.id, []).append(self.now)
        if self.actor != DAEMON:
            self.resumed.add(record.id)
            self.saved_now()

    def requeue(self, record: Record, hold: bool, held_text: str = REQUEUED_HELD) -> None:
        super().requeue(record, hold, held_text)
        self.suspenders.pop(record.id, None)
        if hold and not (self.actor == SLURM and self.holders.get(record.id) in PEOPLE):
            self.holders[record.id] = self.actor
        if self.actor == SLURM:
            self.exits += 1
        elif self.actor != DAEMON:
            self.saved_now()

    def _lose_node(self, record: Record) -> None:
        super()._lose_node(record)
        self.suspenders.pop(record.id, None)
        self.saved_now()

    # -- crashes of slurmctld ----------------------------------------------------------------------------------------
    def note_saved(self) -> None:
        """slurmctld may have saved its state now."""
        self._saves.append((self.save(), dict(self.holders), dict(self.suspenders)))

    def saved_now(self) -> None:
        """It has: nothing from before is forgotten any more. Nobody repeats what people or Slurm itself did."""
        self._saves.clear()

    def crash(self, age: float, fails: Sequence[bool]) -> None:
        """It is killed, and has forgotten what is younger than ``age`` seconds, as far as the kept states tell.
        ``fails``: as ``restart`` takes it, in turn."""
        self.catch_up()
        known = set(self.records)
        if self.exits != self.observed_exits:
            self.saved_now()
        old = [kept for kept in self._saves if kept[0].at <= self.now - age]
        if not old:
            old = [self._saves[0]] if self._saves else [(self.save(), dict(self.holders), dict(self.suspenders))]
        saved, holders, suspenders = old[-1]
        with self.acting(SLURM):
            self.restart(saved, lambda number: fails[number % len(fails)])
        self.forgotten |= known - set(self.records)
        new = set(self.records) - set(saved.records)
        self.holders = {**holders, **{number: self.holders[number] for number in new if number in self.holders}}
        self.suspenders = suspenders
        self.released.clear()
        self._saves.clear()

    def _wrong(self, record: Record, text: str) -> None:
        self.wrongs.append(f"{self.now:.1f}: job {record.ref}: {text}")

    def fits_ever(self, record: Record) -> bool:
        """Whether it would start if nothing else ran."""
        nodes = []
        for node in self.fake_nodes.values():
            empty = node.copy()
            empty.reset()
            nodes.append(empty)
        return place_job(record.request, nodes, record.request.exclusive) is not None and self.licenses.exist(
            record.licenses
        )
