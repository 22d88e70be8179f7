"""The history: events, preemptions, costs, idle CPUs, waits.

A SQLite file; ``PRAGMA user_version`` holds its format.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon.cluster.job_refs import brief_ref, share_tasks
from omfs_daemon.daemon.store.disk import make_own
from omfs_daemon.daemon.store.file_format import HISTORY, format_of
from omfs_daemon.daemon.store.idle_hours import HOUR, IdleHour, IdleShare, hours_of
from omfs_daemon.daemon.store.shadow_rows import ShadowKind, ShadowRow
from omfs_daemon.daemon.store.sqlite_file import open_sqlite
from omfs_daemon.daemon.store.wait_hours import WaitGroup, WaitShare
from omfs_daemon.errors import OmfsError
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
CREATE TABLE IF NOT EXISTS concerned (
    user TEXT NOT NULL, time REAL NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (user, time, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cost (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, method TEXT NOT NULL,
    direction TEXT NOT NULL, seconds REAL NOT NULL, moving REAL NOT NULL, bytes INTEGER NOT NULL, lost REAL NOT NULL,
    nodes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS cost_by_time ON cost (time);
CREATE INDEX IF NOT EXISTS cost_by_user ON cost (user, time);
CREATE TABLE IF NOT EXISTS shadow (
    kind TEXT NOT NULL, job TEXT NOT NULL, begun REAL NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    class TEXT NOT NULL, cpus INTEGER NOT NULL, method TEXT NOT NULL, preemptor TEXT NOT NULL, patience REAL NOT NULL,
    lost REAL NOT NULL, ended REAL, started INTEGER NOT NULL, PRIMARY KEY (begun, kind, job, preemptor));
CREATE TABLE IF NOT EXISTS idle_hour (
    begin REAL NOT NULL, cause TEXT NOT NULL, watched REAL NOT NULL, cpu_seconds REAL NOT NULL,
    PRIMARY KEY (begin, cause));
CREATE TABLE IF NOT EXISTS wait_hour (
    begin REAL NOT NULL, grouped TEXT NOT NULL, value TEXT NOT NULL, jobs INTEGER NOT NULL, waited REAL NOT NULL,
    longest REAL NOT NULL, PRIMARY KEY (begin, grouped, value)) WITHOUT ROWID;
"""
_CONCERNED = """
INSERT OR IGNORE INTO concerned
    SELECT preemption.user, preemption.time, preemption.id FROM preemption UNION
    SELECT json_extract(value, '$.user'), preemption.time, preemption.id FROM preemption, json_each(victims);
"""
"""Whose jobs were in which preemptions, for files of formats before 3, which had no such table."""


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
MOST_COSTS = 20_000
"""The most that are read at once: a day of the busiest sites, and a small part of a second."""
MOST_EVENTS = 2000
"""The most events of one job that are read, and of those of its array."""

_COST_COLUMNS = 11
"""The last field of PaidCost is for metrics only."""


class HistoryDatabase:
    """Owns the file; usable from several threads. A damaged file is moved aside; FormatError for a format that is not
    read.

    What is read goes over a connection of its own: the daemon's writes wait for no reader (WAL, sqlite.org/wal.html).
    """

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._readers = Lock()
        self._log = structlog.get_logger("history")
        format_of(HISTORY, path)
        try:
            self._database = _opened(path)
        except sqlite3.Error as error:
            aside = path.with_suffix(".damaged")
            self._log.error("history_damaged", error=str(error), moved_to=str(aside), message="a new history is begun")
            path.replace(aside)
            self._database = _opened(path)
        self._reading = _for_reading(path)

    def forget_before(self, time: float) -> None:
        """Delete what happened earlier, so that the file does not grow forever."""
        self._write("DELETE FROM event WHERE time < ?", [(time,)])
        self._write("DELETE FROM preemption WHERE time < ?", [(time,)])
        self._write("DELETE FROM concerned WHERE time < ?", [(time,)])
        self._write("DELETE FROM cost WHERE time < ?", [(time,)])
        self._write("DELETE FROM task WHERE time < ?", [(time,)])
        self._write("DELETE FROM shadow WHERE begun < ?", [(time,)])
        self._write("DELETE FROM idle_hour WHERE begin < ?", [(time,)])
        self._write("DELETE FROM wait_hour WHERE begin < ?", [(time,)])

    def record_tasks(self, time: float, tasks: Mapping[int, str]) -> None:
        """The tasks of arrays that have these raw ids."""
        if tasks:
            rows = [(number, time, ref) for number, ref in tasks.items()]
            self._write("INSERT OR REPLACE INTO task VALUES (?, ?, ?)", rows)

    def task_named(self, number: int) -> str | None:
        """The task of an array that has, or had last, this raw id; None if nothing has happened to any."""
        with self._readers:
            row = self._reading.execute("SELECT job FROM task WHERE id = ?", (number,)).fetchone()
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
        users = {preemptor.user, *(victim.user for victim in preemption.victims)}
        rows = [(user, preemption.begun, preemption.id) for user in users]
        self._write("INSERT OR IGNORE INTO concerned VALUES (?, ?, ?)", rows)

    def record_costs(self, paid: Iterable[PaidCost]) -> None:
        rows = [tuple(one[:_COST_COLUMNS]) for one in paid]
        if rows:
            self._write("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def costs(self, since: float, user: str | None = None, limit: int = MOST_COSTS) -> list[PaidCost]:
        """What the newest ``limit`` preemptions and returns since then have cost, oldest first; with ``user``, of that
        user's jobs."""
        of_user = "" if user is None else "user = :user AND "
        with self._readers:
            rows = self._reading.execute(
                f"SELECT * FROM cost WHERE {of_user}time >= :since ORDER BY time DESC, rowid DESC LIMIT :limit",  # noqa: S608
                {"since": since, "user": user, "limit": limit},
            ).fetchall()
        return [PaidCost(*row) for row in reversed(rows)]

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
        with self._readers:
            rows = self._reading.execute(
                "SELECT * FROM shadow WHERE begun >= :since OR (kind = :watched AND ended >= :since) ORDER BY begun",
                {"since": since, "watched": ShadowKind.WATCHED},
            ).fetchall()
        return [ShadowRow._make((*row[:12], bool(row[12]))) for row in rows]

    def add_idle(self, shares: Sequence[IdleShare]) -> None:
        """Add to what these hours have by these causes."""
        self._write(
            "INSERT INTO idle_hour VALUES (?, ?, ?, ?) ON CONFLICT (begin, cause) DO UPDATE SET"
            " watched = watched + excluded.watched, cpu_seconds = cpu_seconds + excluded.cpu_seconds",
            shares,
        )

    def idle_hours(self, since: float) -> list[IdleHour]:
        """The hours that end after ``since``, oldest first."""
        with self._readers:
            rows = self._reading.execute(
                "SELECT * FROM idle_hour WHERE begin > ? ORDER BY begin", (since - HOUR,)
            ).fetchall()
        return hours_of(IdleShare._make(row) for row in rows)

    def add_waits(self, shares: Sequence[WaitShare]) -> None:
        """Add to what these hours have of these partitions and accounts."""
        self._write(
            "INSERT INTO wait_hour VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (begin, grouped, value) DO UPDATE SET"
            " jobs = jobs + excluded.jobs, waited = waited + excluded.waited, longest = max(longest, excluded.longest)",
            shares,
        )

    def waits(self, since: float) -> list[WaitShare]:
        """Of the hours that end after ``since``, oldest first."""
        with self._readers:
            rows = self._reading.execute(
                "SELECT * FROM wait_hour WHERE begin > ? ORDER BY begin, grouped, value", (since - HOUR,)
            ).fetchall()
        return [WaitShare(row[0], WaitGroup(row[1]), *row[2:]) for row in rows]

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            self._log.warning("history_not_written", error=str(error), lost=len(rows))

    def of_job(self, job: str) -> list[JobEvent]:
        """The newest events of a job, oldest first; of an array task also those of lists that (may) contain it, of an
        array's id those of all of its tasks."""
        tasks = f"{job}_" if job.isdecimal() else f"{job.partition('_')[0]}_["
        with self._readers:
            rows = self._reading.execute(
                "SELECT * FROM event WHERE job = :job OR (job >= :tasks AND job < :beyond)"
                " ORDER BY time DESC, rowid DESC LIMIT :limit",
                {
                    "job": brief_ref(job),
                    "tasks": tasks,
                    "beyond": tasks[:-1] + chr(ord(tasks[-1]) + 1),
                    "limit": MOST_EVENTS,
                },
            ).fetchall()
        return [
            JobEvent._make((*row[:6], json.loads(row[6])))
            for row in reversed(rows)
            if job.isdecimal() or share_tasks(row[1], job)
        ]

    def bounds(self, since: float) -> tuple[int, int]:
        """Of the real-time jobs that have started since then: how many within their bound, and how many too late."""
        with self._readers:
            rows = self._reading.execute(
                "SELECT json_extract(data, '$.kept'), count(*) FROM event WHERE event = ? AND time >= ? GROUP BY 1",
                (STARTED, since),
            ).fetchall()
        found = {bool(kept): int(number) for kept, number in rows}
        return found.get(True, 0), found.get(False, 0)

    def preemptions(self, limit: int, since: float, user: str | None = None) -> list[PastPreemption]:
        """The newest that began at or after ``since``, newest first; with ``user``, those with a job of that user."""
        of_user = "" if user is None else "JOIN concerned USING (id, time) WHERE concerned.user = :user AND "
        with self._readers:
            rows = self._reading.execute(
                "SELECT time, preemptor, preemption.user, account, urgent, reason, waited, outcome, victims"  # noqa: S608
                f" FROM preemption {of_user or 'WHERE '}preemption.time >= :since"
                " ORDER BY preemption.time DESC, id DESC LIMIT :limit",
                {"since": since, "user": user, "limit": limit},
            ).fetchall()
        return [PastPreemption._make((*row[:4], bool(row[4]), *row[5:8], json.loads(row[8]))) for row in rows]

    def close(self) -> None:
        with self._readers:
            self._reading.close()
        with self._lock:
            self._database.close()


def _opened(path: Path) -> sqlite3.Connection:
    try:
        make_own(path)  # SQLite gives the files beside it the same mode
    except OSError as error:
        raise OmfsError(f"{path}: cannot be opened: {error.strerror}") from error
    return open_sqlite(path, HISTORY, _TABLES, _CONCERNED)


def _for_reading(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA query_only=ON")
    return database
