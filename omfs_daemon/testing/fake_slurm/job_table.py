"""The jobs that the fake knows: by id, by array, live ones, and those that depend on others."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.fake_slurm.fake_jobs import History, Record


class JobTable:
    """``history`` is never forgotten; an ended job's record is when :meth:`forget` says so."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.live: dict[int, Record] = {}
        self.history: dict[int, History] = {}
        self.next_id = 1
        self._uids: dict[str, int] = {}
        self._dependents: dict[int, list[Record]] = {}
        self._arrays: dict[int, list[Record]] = {}

    def new_id(self, number: int = 1) -> int:
        """The first of so many ids."""
        self.next_id += number
        return self.next_id - number

    def uid(self, user: str) -> int:
        return self._uids.setdefault(user, 1000 + len(self._uids))

    def add(self, record: Record) -> None:
        self.records[record.id] = self.live[record.id] = record
        self.history[record.id] = record.history
        if record.array_id is not None:
            self._arrays.setdefault(record.array_id, []).append(record)
        for other in record.what.after:
            self.add_dependent(record, other)

    def add_dependent(self, record: Record, other: int) -> None:
        self._dependents.setdefault(other, []).append(record)

    def records_of(self, job_id: int) -> list[Record]:
        """All known records, ended ones too, that a bare id names: one job, or all of an array."""
        if job_id in self._arrays:
            return list(self._arrays[job_id])
        return [self.records[job_id]] if job_id in self.records else []

    def live_of(self, job_id: int) -> Iterator[Record]:
        yield from (one for one in self.records_of(job_id) if one.id in self.live)

    def retire(self, record: Record) -> list[Record]:
        """Remove a job from the live ones; returns those that no longer have to wait for it."""
        record.state, record.shown = JobState.ENDED, None
        del self.live[record.id]
        known_as = record.array_id or record.id
        over = known_as in self._dependents and not next(self.live_of(known_as), None)
        return self._dependents.pop(known_as) if over else []

    def saved(self) -> JobTable:
        """The same jobs; what is done to one table does not change the other."""
        found = copy(self)
        found._take(self)
        return found

    def restore(self, saved: JobTable) -> None:
        """Only the jobs of that table are known from now on; ids go on, and so do histories."""
        self._take(saved)

    def _take(self, other: JobTable) -> None:
        self.records, self.live = dict(other.records), dict(other.live)
        self._dependents = {number: list(records) for number, records in other._dependents.items()}
        self._arrays = {number: list(records) for number, records in other._arrays.items()}

    def revive(self, record: Record) -> None:
        """An ended job is live again."""
        self.live[record.id] = record

    def forget(self, record: Record) -> None:
        del self.records[record.id]
        if record.array_id is not None:
            self._arrays[record.array_id].remove(record)
            if not self._arrays[record.array_id]:
                del self._arrays[record.array_id]
