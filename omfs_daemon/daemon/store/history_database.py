"""The SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple
import structlog
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.preemption.records import Event
from omfs_daemon.preemption.records import Paid

_TABLES = """
CREATE TABLE IF NOT EXISTS event (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    event TEXT NOT NULL, text TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS event_by_job ON event (job, time);
CREATE TABLE IF NOT EXISTS stop (
    id INTEGER NOT NULL, time REAL NOT NULL, beneficiary TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    urgent INTEGER NOT NULL, reason TEXT NOT NULL, waited REAL, outcome TEXT NOT NULL, victims TEXT NOT NULL,
    PRIMARY KEY (id, time));
CREATE INDEX IF NOT EXISTS stop_by_time ON stop (time);
CREATE TABLE IF NOT EXISTS cost (
    time REAL NOT NULL, job TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, method TEXT NOT NULL,
    way TEXT NOT NULL, seconds REAL NOT NULL, moving REAL NOT NULL, bytes INTEGER NOT NULL, lost REAL NOT NULL,
    nodes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS cost_by_time ON cost (time);
"""


class PastStop(NamedTuple):
    """A stop that is over. ``victims``: dicts with job, user, account, method, cpus; ``waited``: since submit."""

    time: float
    beneficiary: str
    user: str
    account: str
    urgent: bool
    reason: str
    waited: float | None
    outcome: str
    victims: list[dict[str, object]]


class Story:
    """Owns the file; usable from several threads. A damaged file is moved aside."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._log = structlog.get_logger("story")
        try:
            self._database = _opened(path)
        except sqlite3.Error as error:
            aside = path.with_suffix(".damaged")
            self._log.error("history cannot be read: begun anew", error=str(error), moved_to=str(aside))
            path.replace(aside)
            self._database = _opened(path)

    def forget_before(self, time: float) -> None:
        """Drop what happened earlier, so that the file does not grow for ever."""
        self._write("DELETE FROM event WHERE time < ?", [(time,)])
        self._write("DELETE FROM stop WHERE time < ?", [(time,)])
        self._write("DELETE FROM cost WHERE time < ?", [(time,)])

    def tell(self, events: Iterable[Event]) -> None:
        rows = [(*event[:6], json.dumps(dict(event.data))) for event in events]
        if rows:
            self._write("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def tell_stop(self, stop: Stop) -> None:
        """A stop that is over."""
        beneficiary = stop.beneficiary
        waited = None if stop.started_at is None else stop.started_at - beneficiary.submitted
        victims = [
            {"job": v.ref, "user": v.user, "account": v.account, "method": v.method, "cpus": v.cpus}
            for v in stop.victims
        ]
        row = (
            stop.id, stop.begun, beneficiary.ref, beneficiary.user, beneficiary.account, int(beneficiary.urgent),
            stop.reason, waited, stop.outcome or "", json.dumps(victims),
        )  # fmt: skip
        self._write("INSERT OR REPLACE INTO stop VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [row])

    def tell_costs(self, paid: Iterable[Paid]) -> None:
        rows = [tuple(one) for one in paid]
        if rows:
            self._write("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def costs(self, since: float, user: str | None = None) -> list[Paid]:
        """What stops have cost since then, oldest first; with ``user``, those of his jobs."""
        with self._lock:
            rows = self._database.execute(
                "SELECT * FROM cost WHERE time >= :since AND (:user IS NULL OR user = :user) ORDER BY time, rowid",
                {"since": since, "user": user},
            ).fetchall()
        return [Paid._make(row) for row in rows]

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self._lock:
                self._database.executemany(statement, rows)
        except sqlite3.Error as error:
            self._log.warning("history cannot be written", error=str(error), lost=len(rows))

    def of_job(self, job: str) -> list[Event]:
        """All events of a job, oldest first."""
        with self._lock:
            rows = self._database.execute("SELECT * FROM event WHERE job = ? ORDER BY time, rowid", (job,)).fetchall()
        return [Event._make((*row[:6], json.loads(row[6]))) for row in rows]

    def stops(self, limit: int, since: float, user: str | None = None) -> list[PastStop]:
        """The newest stops that began at or after ``since``, newest first; with ``user``, those with a job of his."""
        with self._lock:
            rows = self._database.execute(
                "SELECT time, beneficiary, user, account, urgent, reason, waited, outcome, victims FROM stop"
                " WHERE time >= :since AND (:user IS NULL OR user = :user OR EXISTS"
                " (SELECT 1 FROM json_each(victims) WHERE json_extract(value, '$.user') = :user))"
                " ORDER BY time DESC, id DESC LIMIT :limit",
                {"since": since, "user": user, "limit": limit},
            ).fetchall()
        return [PastStop._make((*row[:4], bool(row[4]), *row[5:8], json.loads(row[8]))) for row in rows]

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    try:
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _TABLES)
    except sqlite3.Error:
        database.close()
        raise
    return database
