"""The jobs that have ended, for predictions: a SQLite file of its own (``PRAGMA user_version`` holds its format).

Safety never rests on it: a damaged file is moved aside, and one that cannot be written costs predictions only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from omfs_daemon.daemon.store.file_format import ENDED_JOBS, format_of
from omfs_daemon.daemon.store.sqlite_file import open_sqlite
from omfs_daemon.errors import ControlError
from omfs_daemon.predict.features import JobFeatures, stored_name
from omfs_daemon.predict.job_ends import JobEnd
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.starts.track_record import LATEST, NotedStart

_TABLES = """
CREATE TABLE IF NOT EXISTS ended (
    job INTEGER NOT NULL, start REAL NOT NULL, ended REAL NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL,
    partition TEXT NOT NULL, qos TEXT NOT NULL, command TEXT NOT NULL, name TEXT NOT NULL, cpus INTEGER NOT NULL,
    nodes INTEGER NOT NULL, gres TEXT NOT NULL, time_limit REAL NOT NULL, hour INTEGER NOT NULL, run REAL NOT NULL,
    how TEXT NOT NULL, predictor TEXT, p50 REAL, p90 REAL, seen REAL, start_p50 REAL, start_p90 REAL, slurm_start REAL,
    PRIMARY KEY (job, start)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ended_by_time ON ended (ended);
CREATE INDEX IF NOT EXISTS ended_by_user ON ended (user);
CREATE TABLE IF NOT EXISTS earlier_run (
    job INTEGER NOT NULL, start REAL NOT NULL, run REAL NOT NULL, user TEXT NOT NULL, PRIMARY KEY (job, start));
CREATE TABLE IF NOT EXISTS foreseen (
    job INTEGER PRIMARY KEY, user TEXT NOT NULL, predictor TEXT NOT NULL, p50 REAL NOT NULL, p90 REAL NOT NULL,
    seen REAL NOT NULL, start_p50 REAL, start_p90 REAL, slurm_start REAL);
CREATE TABLE IF NOT EXISTS noted_start (
    job INTEGER PRIMARY KEY, user TEXT NOT NULL, at REAL NOT NULL, p50 REAL NOT NULL, p90 REAL NOT NULL,
    moments INTEGER NOT NULL, last REAL NOT NULL, began REAL);
CREATE TABLE IF NOT EXISTS forgotten (user TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS to_learn (begin REAL NOT NULL, until REAL NOT NULL);
"""
_FEATURES = "user, account, partition, qos, command, name, cpus, nodes, gres, time_limit, hour"
_ENDS = f"job, start, ended, run, how, {_FEATURES}"
_SCORED = "user, partition, predictor, run, how, p50, p90, start, seen, start_p50, start_p90, slurm_start"
_NOTED = ", ".join(NotedStart._fields)
_KEPT_EARLIER = 60 * 86400.0
"""Seconds for which a run that was preempted is remembered; its job number may come again later."""


class Foreseen(NamedTuple):
    """What was foreseen of a waiting job when it was first seen. Times in seconds since the epoch, None: nothing."""

    job: int
    user: str
    predictor: str
    p50: float
    p90: float
    seen: float
    start_p50: float | None
    start_p90: float | None
    slurm_start: float | None


class ScoredJob(NamedTuple):
    """A job that has ended, and what had been foreseen of it."""

    user: str
    partition: str
    predictor: str
    run: float
    how: HowEnded
    p50: float
    p90: float
    start: float
    seen: float
    start_p50: float | None
    start_p90: float | None
    slurm_start: float | None


class EndedJobs:
    """Owns the file; usable from several threads. FormatError for one in a format that is not read.

    most  rows that are kept; the oldest go
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self._lock = Lock()
        self._log = structlog.get_logger("predict")
        self._most = most
        self._failed = False
        self.is_new = not path.exists()
        format_of(ENDED_JOBS, path)
        try:
            self._database = _opened(path)
        except sqlite3.Error as error:
            aside = path.with_suffix(".damaged")
            text = "what was learned of run times is lost, and learned anew"
            self._log.error("ended_jobs_damaged", error=str(error), moved_to=str(aside), message=text)
            path.replace(aside)
            for beside in ("-wal", "-shm"):
                Path(f"{path}{beside}").unlink(missing_ok=True)
            self.is_new = True
            self._database = _opened(path)

    def add(self, ends: Iterable[JobEnd], learned_to: tuple[float, float] | None = None) -> list[JobEnd]:
        """Keep those that teach and are not known yet, and return them; all or none of them.

        learned_to  a day of accounting (begin and end, as in ``days_to_learn``) that has been read with them
        """
        fresh: list[JobEnd] = []

        def write(database: sqlite3.Connection) -> None:
            fresh.clear()
            forgotten = dict(database.execute("SELECT user, at FROM forgotten"))
            for end in ends:
                if forgotten and end.ended <= forgotten.get(stored_name(end.features.user), 0.0):
                    continue
                if end.how is None:
                    row = (end.job, end.start, end.run, end.features.user)
                    database.execute("INSERT OR IGNORE INTO earlier_run VALUES (?, ?, ?, ?)", row)
                elif end.how.teaches and self._insert(database, end):
                    fresh.append(end)
                database.execute("DELETE FROM foreseen WHERE job = ?", (end.job,))
            if learned_to is not None:
                database.execute("UPDATE to_learn SET begin = ? WHERE begin = ?", (learned_to[1], learned_to[0]))
                database.execute("DELETE FROM to_learn WHERE begin >= until")
            if fresh:
                self._drop_oldest(database, fresh)

        return fresh if self._write(write) else []

    @staticmethod
    def _insert(database: sqlite3.Connection, end: JobEnd) -> bool:
        job, how = end.features, end.how.value if end.how is not None else ""
        features = (job.user, job.account, job.partition, job.qos, job.command, job.name, job.cpus, job.nodes, job.gres)
        foreseen = database.execute(
            "SELECT predictor, p50, p90, seen, start_p50, start_p90, slurm_start FROM foreseen"
            " WHERE job = ? AND user = ?",
            (end.job, job.user),
        ).fetchone()
        row = (end.job, end.start, end.ended, *features, job.limit, job.hour, end.run, how, *(foreseen or (None,) * 7))
        marks = ", ".join("?" * len(row))
        return database.execute(f"INSERT OR IGNORE INTO ended VALUES ({marks})", row).rowcount > 0  # noqa: S608

    def _drop_oldest(self, database: sqlite3.Connection, fresh: Sequence[JobEnd]) -> None:
        (count,) = database.execute("SELECT count(*) FROM ended").fetchone()
        if count > self._most:
            database.execute(
                "DELETE FROM ended WHERE (job, start) IN (SELECT job, start FROM ended ORDER BY ended LIMIT ?)",
                (count - self._most,),
            )
        oldest = max(end.ended for end in fresh) - _KEPT_EARLIER
        database.execute("DELETE FROM earlier_run WHERE start < ?", (oldest,))

    def earlier_runs(self, job: int, start: float, user: str) -> float:
        """Seconds that the job ran before this start, in runs that did not end it."""
        with self._lock:
            row = self._database.execute(
                "SELECT sum(run) FROM earlier_run WHERE job = ? AND user = ? AND start BETWEEN ? AND ? - 1",
                (job, user, start - _KEPT_EARLIER, start),
            ).fetchone()
        return float(row[0] or 0.0)

    def all(self) -> Iterator[JobEnd]:
        """Every job, in the order in which they ended; others can write meanwhile."""
        reader = sqlite3.connect(self.path, timeout=5.0, isolation_level=None)
        try:
            for row in reader.execute(f"SELECT {_ENDS} FROM ended ORDER BY ended, job"):  # noqa: S608
                yield _end(row)
        finally:
            reader.close()

    def count(self) -> int:
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM ended").fetchone()[0])

    def ended_since(self, since: float) -> int:
        """How many jobs have ended since then."""
        with self._lock:
            return int(self._database.execute("SELECT count(*) FROM ended WHERE ended > ?", (since,)).fetchone()[0])

    # -- what was foreseen --
    def foresee(self, rows: Sequence[Foreseen]) -> None:
        """Keep what was foreseen of jobs; what was foreseen of them before stays."""
        self._write(
            lambda database: database.executemany(
                "INSERT OR IGNORE INTO foreseen VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
        )

    def foreseen(self) -> set[int]:
        """The jobs of which something was foreseen, and that have not ended."""
        with self._lock:
            return {row[0] for row in self._database.execute("SELECT job FROM foreseen")}

    def forget_foreseen(self, before: float) -> None:
        """Of jobs whose end was never seen."""
        self._write(lambda database: database.execute("DELETE FROM foreseen WHERE seen < ?", (before,)))

    def scored(self, since: float, user: str | None = None) -> list[ScoredJob]:
        """Jobs that have ended since then of which something had been foreseen; with ``user``, of that user."""
        with self._lock:
            rows = self._database.execute(
                f"SELECT {_SCORED} FROM ended WHERE ended >= ? AND predictor IS NOT NULL"  # noqa: S608
                " AND (? IS NULL OR user = ?) ORDER BY ended",
                (since, user, user),
            ).fetchall()
        return [_scored(row) for row in rows]

    def scored_of(self, ends: Iterable[JobEnd]) -> list[ScoredJob]:
        """Those of these of which something had been foreseen."""
        found = []
        with self._lock:
            for end in ends:
                row = self._database.execute(
                    f"SELECT {_SCORED} FROM ended WHERE job = ? AND start = ? AND predictor IS NOT NULL",  # noqa: S608
                    (end.job, end.start),
                ).fetchone()
                found += [_scored(row)] if row else []
        return found

    # -- the track record of starts --
    def noted_starts(self) -> list[NotedStart]:
        """All that are kept."""
        with self._lock:
            rows = self._database.execute(f"SELECT {_NOTED} FROM noted_start").fetchall()  # noqa: S608
        return [NotedStart._make(row) for row in rows]

    def keep_noted(self, noted: Sequence[tuple[str, NotedStart]]) -> None:
        """Of jobs that wait, each with its user; what was kept of them before goes."""
        rows = [(user, *one) for user, one in noted]
        self._write(
            lambda database: database.executemany(
                f"INSERT OR REPLACE INTO noted_start (user, {_NOTED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                rows,
            )
        )

    def keep_begun(self, started: Sequence[NotedStart]) -> None:
        """These jobs have started; of more than ``LATEST`` the oldest go."""

        def write(database: sqlite3.Connection) -> None:
            rows = [(one.began, one.job) for one in started]
            database.executemany("UPDATE noted_start SET began = ? WHERE job = ?", rows)
            database.execute(
                "DELETE FROM noted_start WHERE began < (SELECT began FROM noted_start WHERE began IS NOT NULL"
                " ORDER BY began DESC LIMIT 1 OFFSET ?)",
                (LATEST - 1,),
            )

        self._write(write)

    def drop_noted(self, jobs: Iterable[int]) -> None:
        """These jobs wait no more, and have not started."""
        rows = [(job,) for job in jobs]
        self._write(
            lambda database: database.executemany("DELETE FROM noted_start WHERE job = ? AND began IS NULL", rows)
        )

    # -- what is to be learned from accounting --
    def ask_to_learn(self, begin: float, until: float) -> None:
        """Read accounting from ``begin`` to ``until`` (seconds since the epoch), beside what is to be read already."""
        self._write(lambda database: database.execute("INSERT INTO to_learn VALUES (?, ?)", (begin, until)))

    def days_to_learn(self) -> list[tuple[float, float]]:
        """Periods of accounting that are to be read, each from where it was read up to."""
        with self._lock:
            return self._database.execute("SELECT begin, until FROM to_learn ORDER BY begin").fetchall()

    def learn_no_more(self) -> None:
        """There is no accounting to be read."""
        self._write(lambda database: database.execute("DELETE FROM to_learn"))

    def forget_user(self, user: str, now: float) -> int:
        """Delete all that is kept of a user, but for a hash of the name: jobs that ended until now are not learned
        again. How many jobs that were; ControlError if the file cannot be written."""
        count = 0

        def write(database: sqlite3.Connection) -> None:
            nonlocal count
            count = database.execute("DELETE FROM ended WHERE user = ?", (user,)).rowcount
            database.execute("DELETE FROM earlier_run WHERE user = ?", (user,))
            database.execute("DELETE FROM foreseen WHERE user = ?", (user,))
            database.execute("DELETE FROM noted_start WHERE user = ?", (user,))
            database.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", (stored_name(user), now))

        if not self._write(write):
            raise ControlError(
                f"nothing was forgotten of {user}: the file of ended jobs cannot be written; see the log"
            )
        with self._lock:  # what was deleted must not stay in the file
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.execute("VACUUM")
        return count

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _write(self, change: Callable[[sqlite3.Connection], object]) -> bool:
        """One transaction; False if the file cannot be written, which is logged once until it can be again."""
        try:
            with self._lock, _transaction(self._database):
                change(self._database)
        except sqlite3.Error as error:
            if not self._failed:
                text = "predictions do not learn until it can be written again"
                self._log.error("ended_jobs_not_written", error=str(error), message=text)
            self._failed = True
            return False
        self._failed = False
        return True


def latest_ends(path: Path, most: int) -> list[JobEnd]:
    """Of the jobs in the file, of which another process is the owner, the latest, in the order in which they ended;
    sqlite3.Error if it cannot be read."""
    reader = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", timeout=5.0, uri=True)
    try:
        rows = reader.execute(f"SELECT {_ENDS} FROM ended ORDER BY ended DESC, job DESC LIMIT ?", (most,))  # noqa: S608
        return [_end(row) for row in rows][::-1]
    finally:
        reader.close()


def _end(row: Sequence[Any]) -> JobEnd:
    job, start, ended, run, how, *features = row
    return JobEnd(job, start, ended, JobFeatures(*features), run, HowEnded(how))


def _scored(row: Sequence[Any]) -> ScoredJob:
    return ScoredJob._make((*row[:4], HowEnded(row[4]), *row[5:]))


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _opened(path: Path) -> sqlite3.Connection:
    database = open_sqlite(path, ENDED_JOBS, _TABLES)
    try:
        database.execute("PRAGMA secure_delete=ON")
        path.chmod(0o600)
        if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is malformed")
    except BaseException:
        database.close()
        raise
    return database
