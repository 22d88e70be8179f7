"""The holes that large jobs left in a recorded period, and what conservative backfilling would have put there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.errors import ConfigError
from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.hole_filling import FilledHole, HoleQueue, IdleProfile, filled_hole
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.predicted_lengths import predicted_lengths
from omfs_daemon.simulate.kernels.idle_use_kernel import fill_with_preemptible

HOUR = 3600.0
LENGTHS = ("limit", "real", "predicted")

HOLE_COLUMNS = (
    *("job_id", "cores", "submit", "eligible", "start", "wait", "idle_core_hours", "waiting_jobs"),
    *("accepted", "accepted_core_hours", "filled_share", "refused_by_end", "refused_by_cores"),
    *("real_core_hours", "preemptible_core_hours", "preemptible_stops", "preemptible_lost_core_hours"),
)


class PreemptibleUse(NamedTuple):
    """Core hours of a hole that the jobs behind it would have used if they could be stopped, and so need not end before
    its end; how often they would have been stopped; and the core hours lost if stopping them kills them."""

    core_hours: float
    stops: int
    lost: float


class LogHole(NamedTuple):
    """``real_core_hours``: what the accepted jobs used when they ran, cores times run time."""

    job_id: str
    cores: int
    submit: float
    eligible: float
    filled: FilledHole
    real_core_hours: float
    preemptible: PreemptibleUse

    def row(self) -> tuple[Value, ...]:
        hole = self.filled
        return (
            *(self.job_id, self.cores, self.submit, self.eligible, hole.start, hole.start - self.submit),
            *(hole.idle_core_hours, len(hole.queue.job_id), int(hole.accepted.sum()), hole.core_hours),
            *(hole.filled_share, hole.refused("end", "both"), hole.refused("cores", "both")),
            *(self.real_core_hours, *self.preemptible),
        )


class _Queue(NamedTuple):
    """Jobs that ran, in the order in which they became eligible."""

    job_id: pl.Series
    eligible: Floats
    start: Floats
    cores: Ints
    length: Floats
    run: Floats
    longest_wait: float


def log_holes(
    report: LogReport, waited: float = HOUR, lengths: str = "limit", top: int = 10, job: str | None = None
) -> list[LogHole]:
    """Those of the large jobs that waited so many seconds while cores were idle, most idle core hours first.

    lengths  how long jobs are taken to run: their limit, what they ran, or what was predicted when they were eligible
    job      only the hole of this job, whatever its size

    A hole is from the time at which its job was eligible to its start. Into it go the other jobs that were eligible
    before it ended and started later; those that started in it already have their cores.
    """
    if lengths not in LENGTHS:
        raise ConfigError(f"--lengths = {lengths!r}: must be one of {', '.join(LENGTHS)}")
    ran = report.jobs.filter(pl.col("first_start").is_not_null() & (pl.col("cpus") > 0))
    ran = ran.with_columns((pl.col("first_start") - pl.col("eligible_wait")).alias("eligible_at"))
    waiting = _named(report, ran, job) if job is not None else _large(report, ran, waited)
    queue = _queue(ran, lengths)
    idle = np.concatenate(((0.0,), np.cumsum(report.use.idle * report.use.seconds)))
    edges = np.append(report.use.time, report.use.end)
    size = np.diff(np.interp(waiting.select("eligible_at", "first_start").to_numpy(), edges, idle), axis=1)[:, 0]
    order = np.argsort(-size, kind="stable")[:top]
    chosen = waiting[order.tolist()].select("job_id", "cpus", "first_submit", "eligible_at", "first_start")
    return [_hole(report, queue, *row) for row in chosen.iter_rows()]


def _large(report: LogReport, ran: pl.DataFrame, waited: float) -> pl.DataFrame:
    return ran.filter((pl.col("cpus") > report.large) & (pl.col("eligible_wait") >= max(waited, 1e-9)))


def _named(report: LogReport, ran: pl.DataFrame, job: str) -> pl.DataFrame:
    found = ran.filter(pl.col("job_id") == job)
    if not len(found):
        known = bool((report.jobs["job_id"] == job).any())
        raise ConfigError(f"--job = {job!r}: {'it never ran' if known else 'no such job in the period'}")
    if found["eligible_wait"][0] <= 0:
        raise ConfigError(f"--job = {job!r}: it did not wait")
    return found


def _queue(ran: pl.DataFrame, lengths: str) -> _Queue:
    ran = ran.sort("eligible_at", "first_submit", "place")
    if lengths == "predicted":
        length = pl.Series(predicted_lengths(ran))
    else:
        length = ran["limit" if lengths == "limit" else "run"]
    eligible, start = ran["eligible_at"].to_numpy(), ran["first_start"].to_numpy()
    longest = float((start - eligible).max()) if len(ran) else 0.0
    run = ran["run"].fill_null(0.0).to_numpy()
    return _Queue(
        ran["job_id"], eligible, start, ran["cpus"].to_numpy(), length.fill_null(np.inf).to_numpy(), run, longest
    )


def _hole(
    report: LogReport, queue: _Queue, job: str, cores: int, submit: float, eligible: float, start: float
) -> LogHole:
    use = report.use
    begin = max(eligible, float(use.time[0]))
    first = max(int(np.searchsorted(use.time, begin, side="right")) - 1, 0)
    last = int(np.searchsorted(use.time, start, side="left"))
    profile = IdleProfile(np.maximum(use.time[first:last], begin), use.idle[first:last].astype(np.int64))
    low, high = np.searchsorted(queue.eligible, [start - queue.longest_wait - 1, start])
    behind = np.flatnonzero(queue.start[low:high] >= start) + low
    ids = queue.job_id[behind.tolist()].to_list()
    behind = behind[[one != job for one in ids]] if job in ids else behind
    jobs = HoleQueue(
        queue.job_id[behind.tolist()].to_list(), queue.eligible[behind], queue.cores[behind], queue.length[behind]
    )
    filled = filled_hole(profile, jobs, start)
    real = float((queue.cores * queue.run)[behind][filled.accepted].sum()) / HOUR
    return LogHole(job, cores, submit, eligible, filled, real, _preemptible(filled, queue.run[behind]))


def _preemptible(hole: FilledHole, run: Floats) -> PreemptibleUse:
    """The last of the queue is stopped first."""
    events = np.unique(np.concatenate((hole.profile.time, hole.queue.submit, (hole.start,))))
    until = np.full(len(run), hole.start)
    done, stops, lost = fill_with_preemptible(
        hole.profile.time, hole.profile.free, events, hole.queue.submit, until, hole.queue.cores, run
    )
    cores = hole.queue.cores
    return PreemptibleUse(float((done * cores).sum()) / HOUR, int(stops.sum()), float((lost * cores).sum()) / HOUR)


def hole_rows(holes: list[LogHole]) -> Iterator[tuple[Value, ...]]:
    return (hole.row() for hole in holes)
