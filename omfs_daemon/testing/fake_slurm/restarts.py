"""slurmctld of the fake is killed and starts from the state that it had saved last, up to five seconds before.

As measured: nothing that happened since is known any more, while the processes of the jobs are as they are. A job that
was requeued since either seems to run for ever or is found FAILED; one that was suspended seems to run and stands
still; one that was resumed is suspended again; one that was started is ended and waits. Tasks split off since are back
in their arrays. Jobs that were submitted since, or have ended, are not forgotten: slurmd reports what has ended.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import partial

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import Record
from omfs_daemon.testing.fake_slurm.job_lifecycle import JobLifecycle
from omfs_daemon.testing.fake_slurm.job_table import JobTable

_KEPT = ("history", "epoch")

REGISTERS_WITHIN = 1.5
"""Seconds until all nodes have answered a slurmctld that has just started. Until then it shows them as not responding,
and starts no jobs there."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """``records``: as they were, by raw id; ``table``: of the same records."""

    at: float
    records: dict[int, Record]
    table: JobTable


class Restarts(JobLifecycle):
    """Saves the state, and starts from it."""

    booted: str

    @abstractmethod
    def catch_up(self) -> None:
        """Process all events that are due."""

    def save(self) -> SavedState:
        """The state as slurmctld would save it now."""
        self.catch_up()
        return SavedState(
            self.now, {number: copy(one) for number, one in self._jobs.records.items()}, self._jobs.saved()
        )

    def restart(self, saved: SavedState, fails: Callable[[int], bool] = lambda _: False) -> None:
        """It is killed and starts from this. ``fails``: whether a job, by raw id, whose requeue is forgotten is found
        FAILED; else it seems to run."""
        self.catch_up()
        self.booted = f"{max(self.now, float(self.booted) + 1):.0f}"
        known = dict(self._jobs.records)
        later = [one for number, one in known.items() if number not in saved.records and not _is_split(one, saved)]
        found = {number: copy(record) for number, record in known.items()}
        self._running.clear()
        for node in self.fake_nodes.values():
            node.reset()
            node.silent = True
        self.plan(self.now + REGISTERS_WITHIN, self._all_registered)
        self.licenses.reset()
        for record in known.values():
            record.epoch += 1
            self._queue.drop(record)
        self._jobs.restore(saved.table)
        for record in later:
            self._jobs.add(record)
            if record.state is JobState.ENDED:
                self._jobs.retire(record)
        for record in list(self._jobs.records.values()):
            self._recover(record, saved.records.get(record.id, found.get(record.id, record)), found, fails)
        self.wake()

    def _all_registered(self) -> None:
        for node in self.fake_nodes.values():
            node.silent = False
        self.wake()

    def _recover(self, record: Record, saved: Record, found: dict[int, Record], fails: Callable[[int], bool]) -> None:
        """From what is saved and how the job really is."""
        real = found.get(record.id)
        if real is None or saved.state is JobState.ENDED:
            _write(record, saved)
            record.history.outcome = record.history.outcome or "FAILED"  # it was queued again since
            self._at(self.now + self.timing.min_job_age, record, self._jobs.forget)
        elif _has_ended(real):
            _write(record, real)
            self._go_on_ending(record)
        elif saved.state is JobState.COMPLETING:
            _write(record, saved)
            self._go_on_ending(record)
        elif saved.state is JobState.PENDING:
            if real.active:
                record.history.lost += real.work(self.now) - real.checkpoint
            _write(record, saved)
            record.history.outcome = ""
            self.consider(record)
        elif not real.active and saved.state is JobState.SUSPENDED:
            _write(record, real)
            self._go_on_ending(record) if record.state is JobState.COMPLETING else self.consider(record)
        else:
            self._recover_active(record, saved, real, fails)

    def _recover_active(self, record: Record, saved: Record, real: Record, fails: Callable[[int], bool]) -> None:
        _write(record, saved)
        is_gone = not real.active or real.started != saved.started
        if is_gone and fails(record.id):
            record.history.outcome, record.since = "FAILED", None
            record.history.done = record.work(self.now)
            self._retire(record)
            return
        self._occupy(record)
        if saved.state is JobState.SUSPENDED:
            return
        record.ran = real.ran if real.state is JobState.SUSPENDED else record.ran_until(self.now)
        self._run(record)
        if is_gone:
            record.epoch += 1
            self._at(self.now + record.what.time_limit - record.ran, record, partial(self.end, outcome="TIMEOUT"))
        elif real.state is JobState.SUSPENDED:
            self.stand_still(record)

    def stand_still(self, record: Record) -> None:
        """It seems to run, but its processes do nothing."""
        record.epoch += 1

    def _go_on_ending(self, record: Record) -> None:
        if record.state is JobState.ENDED:
            if record.id in self._jobs.live:
                self._jobs.retire(record)
            self._at(self.now + self.timing.min_job_age, record, self._jobs.forget)
            return
        self.licenses.take(record.licenses)
        for taken in record.taken:
            self.fake_nodes[taken.node].completing += 1
        self._at(self.now + self.timing.completing, record, self._leave)

    def _occupy(self, record: Record) -> None:
        self.licenses.take(record.licenses)
        for taken in record.taken:
            self.fake_nodes[taken.node].take_again(taken, cores=record.state is JobState.RUNNING)


def _is_split(record: Record, saved: SavedState) -> bool:
    """Whether it is a task that was in its array when the state was saved."""
    return record.array_id is not None and bool(saved.table.records_of(record.array_id))


def _has_ended(record: Record) -> bool:
    return record.state is JobState.ENDED or (record.state is JobState.COMPLETING and not record.back)


def _write(record: Record, saved: Record) -> None:
    for one in fields(Record):
        if one.name not in _KEPT:
            setattr(record, one.name, getattr(saved, one.name))
    record.shown = None
