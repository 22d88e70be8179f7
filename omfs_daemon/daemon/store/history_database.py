"""The history: events, preemptions, and costs in a SQLite file (``PRAGMA user_version`` holds its format)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon.cluster.job_refs import brief_ref, share_tasks
from omfs_daemon.daemon.store.file_format import HISTORY, format_of
from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow
from omfs_daemon.daemon.store.sqlite_file import open_sqlite
from omfs_daemon.preemption.effects import PreemptionEnd
from omfs_daemon.preemption.realtime_memory import STARTED
from omfs_daemon.preemption.records import JobEvent, PaidCost

_TABLES = """
CREATE TABLE IF NOT EXISTS event (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    event TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS event_by_job ON event (job, time);
CREATE INDEX IF NOT EXISTS event_by_name ON event (event, time);
CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, time REAL NOT NULL, job TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS preemption (
    id INTEGER NOT NULL, time REAL NOT NULL, preemptor TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    urgent INTEGER NOT NULL, reason TEXT NOT NULL, waited REAL, outcome TEXT NOT NULL, victims TEXT NOT NULL,
    PRIMARY KEY (id, time));
CREATE INDEX IF NOT EXISTS preemption_by_time ON preemption (time);
CREATE TABLE IF NOT EXISTS cost (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, method TEXT NOT NULL,
    direction TEXT NOT NULL, seconds REAL NOT NULL, moving REAL NOT NULL, bytes INTEGER NOT NULL, lost REAL NOT NULL,
    nodes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS cost_by_time ON cost (time);
CREATE TABLE IF NOT EXISTS shadow (
    kind TEXT NOT NULL, job TEXT NOT NULL, begun REAL NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    class TEXT NOT NULL, cpus INTEGER NOT NULL, method TEXT NOT NULL, preemptor TEXT NOT NULL, patience REAL NOT NULL,
    lost REAL NOT NULL, ended REAL, started INTEGER NOT NULL, PRIMARY KEY (begun, kind, job, preemptor));
"""


class PastPreemption(NamedTuple):
    """A preemption that is over.

    victims  dicts with job, user, account, method, cpus, preempted (whether it was, in the end)
    waited   seconds from submission to start; None if it did not start
    """

    time: float
    preemptor: str
    user: str
    account: str
    urgent: bool
    reason: str
    waited: float | None
    outcome: str
    victims: list[dict[str, object]]


SHADOW_ROWS = 100_000
"""The most decisions of dry runs that are kept."""

_COST_COLUMNS = 11
"""The last field of PaidCost is for metrics only."""


class HistoryDatabase:
    """Owns the file; usable from several threads. A damaged file is moved aside; FormatError for a format that is not
    read."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._log = structlog.get_logger("history")
        format_of(HISTORY, path)
        try:
            self._database = open_sqlite(path, HISTORY, _TABLES)
        except sqlite3.Error as error:
            aside = path.with_suffix(".damaged")
            self._log.error("history_damaged", error=str(error), moved_to=str(aside), message="a new history is begun")
            path.replace(aside)
            self._database = open_sqlite(path, HISTORY, _TABLES)

    def forget_before(self, time: float) -> None:
        """Delete what happened earlier, so that the file does not grow forever."""
        self._write("DELETE FROM event WHERE time < ?", [(time,)])
        self._write("DELETE FROM preemption WHERE time < ?", [(time,)])
        self._write("DELETE FROM cost WHERE time < ?", [(time,)])
        self._write("DELETE FROM task WHERE time < ?", [(time,)])
        self._write("DELETE FROM shadow WHERE begun < ?", [(time,)])

    def record_tasks(self, time: float, tasks: Mapping[int, str]) -> None:
        """The tasks of arrays that have these raw ids."""
        if tasks:
            rows = [(number, time, ref) for number, ref in tasks.items()]
            self._write("INSERT OR REPLACE INTO task VALUES (?, ?, ?)", rows)

    def task_named(self, number: int) -> str | None:
        """The task of an array that has, or had last, this raw id; None if nothing has happened to any."""
        with self._lock:
            row = self._database.execute("SELECT job FROM task WHERE id = ?", (number,)).fetchone()
        return None if row is None else str(row[0])

    def record_events(self, events: Iterable[JobEvent]) -> None:
        rows = [(event.time, brief_ref(event.job), *event[2:6], json.dumps(dict(event.data))) for event in events]
        if rows:
            self._write("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def record_preemption(self, end: PreemptionEnd) -> None:
        """Add a preemption that is over."""
        preemption, preemptor = end.preemption, end.preemption.preemptor
        victims = [
            {
                "job": v.ref,
                "user": v.user,
                "account": v.account,
                "method": v.method,
                "cpus": v.cpus,
                "preempted": v.ref in end.preempted,
            }
            for v in preemption.victims
        ]
        row = (
            preemption.id, preemption.begun, preemptor.ref, preemptor.user, preemptor.account, int(preemptor.urgent),
            preemption.reason, preemption.waited, preemption.outcome or "", json.dumps(victims),
        )  # fmt: skip
        self._write("INSERT OR REPLACE INTO preemption VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [row])

    def record_costs(self, paid: Iterable[PaidCost]) -> None:
        rows = [tuple(one[:_COST_COLUMNS]) for one in paid]
        if rows:
            self._write("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def costs(self, since: float, user: str | None = None) -> list[PaidCost]:
        """What preemptions and returns have cost since then, oldest first; with ``user``, of that user's jobs."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM cost WHERE time >= :since AND (:user IS NULL OR user = :user) ORDER BY time, rowid",
                {"since": since, "user": user},
            ).fetchall()
        return [PaidCost(*row) for row in rows]

    def record_shadow(self, rows: Sequence[ShadowRow]) -> None:
        """Add or replace decisions of a dry run; the oldest go when there are too many."""
        if rows:
            self._write("INSERT OR REPLACE INTO shadow VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._write(
                "DELETE FROM shadow WHERE begun < (SELECT begun FROM shadow ORDER BY begun DESC LIMIT 1 OFFSET ?)",
                [(SHADOW_ROWS - 1,)],
            )

    def shadow(self, since: float) -> list[ShadowRow]:
        """The decisions of dry runs since then, and the times watched that reach into it, oldest first."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM shadow WHERE begun >= :since OR (kind = :watched AND ended >= :since) ORDER BY begun",
                {"since": since, "watched": ShadowKind.WATCHED},
            ).fetchall()
        return [ShadowRow._make((*row[:12], bool(row[12]))) for row in rows]

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            self._log.warning("history_not_written", error=str(error), lost=len(rows))

    def of_job(self, job: str) -> list[JobEvent]:
        """All events of a job, oldest first; of an array task also those of lists that (may) contain it, of an array's
        id those of all of its tasks."""
        tasks = f"{job}_" if job.isdecimal() else f"{job.partition('_')[0]}_["
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM event WHERE job = :job OR (job >= :tasks AND job < :beyond) ORDER BY time, rowid",
                {"job": brief_ref(job), "tasks": tasks, "beyond": tasks[:-1] + chr(ord(tasks[-1]) + 1)},
            ).fetchall()
        return [
            JobEvent._make((*row[:6], json.loads(row[6])))
            for row in rows
            if job.isdecimal() or share_tasks(row[1], job)
        ]

    def bounds(self, since: float) -> tuple[int, int]:
        """Of the real-time jobs that have started since then: how many within their bound, and how many too late."""
        with self._lock:
            rows = self._database.execute(
                "SELECT json_extract(data, '$.kept'), count(*) FROM event WHERE event = ? AND time >= ? GROUP BY 1",
                (STARTED, since),
            ).fetchall()
        found = {bool(kept): int(number) for kept, number in rows}
        return found.get(True, 0), found.get(False, 0)

    def preemptions(self, limit: int, since: float, user: str | None = None) -> list[PastPreemption]:
        """The newest that began at or after ``since``, newest first; with ``user``, those with a job of that user."""
        with self._lock:
            rows = self._database.execute(
                "SELECT time, preemptor, user, account, urgent, reason, waited, outcome, victims FROM preemption"
                " WHERE time >= :since AND (:user IS NULL OR user = :user OR EXISTS"
                " (SELECT 1 FROM json_each(victims) WHERE json_extract(value, '$.user') = :user))"
                " ORDER BY time DESC, id DESC LIMIT :limit",
                {"since": since, "user": user, "limit": limit},
            ).fetchall()
        return [PastPreemption._make((*row[:4], bool(row[4]), *row[5:8], json.loads(row[8]))) for row in rows]

    def close(self) -> None:
        with self._lock:
            self._database.close()
