"""A period of a log, with what all figures of a report are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.accounting.asked_events import SlurmUtilization
from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.accounting.local_times import local_time
from omfs_daemon.daemon.store.idle_hours import IdleHour
from omfs_daemon.errors import NothingFound
from omfs_daemon.reports.machine_use import Down, MachineSize, MachineUse, machine_use
from omfs_daemon.reports.recorded_idle import covering, split_as_recorded

LARGE_SHARE = 0.078
"""Of the machine: 2,000 of Tachyon2's 25,600 cores (Yoon et al. 2020, section 2.4)."""

_BOUND = 10.0
"""Seconds: shorter runs count as so long in the bounded slowdown."""

_SIZES = (1, 8, 64, 512, 4096, 32768)
_LENGTHS = ((60.0, "under 1 min"), (3600.0, "1 min to 1 h"), (21600.0, "1 h to 6 h"), (86400.0, "6 h to 24 h"))


@dataclass(frozen=True, eq=False)
class LogReport:
    """``jobs``: one row per job of the period, ``waits`` and more in seconds; see ``_jobs``.

    begin, end  of the period: a job counts if it was submitted in it, at the very end only if that is the log's own
    large       jobs of more cores are large
    zone        of months and hours; None: the machine's own
    by_slurm    what Slurm itself adds up; None: not asked, or not yet
    named_user  the only user who appears by name; None: all do
    recorded    hours of the period of which the daemon knows why cores were idle
    """

    records: JobRecords
    frame: pl.DataFrame
    begin: float
    end: float
    size: MachineSize
    large: int
    zone: tzinfo | None
    down: Sequence[Down] = ()
    by_slurm: SlurmUtilization | None = None
    named_user: str | None = None
    recorded: Sequence[IdleHour] = ()

    @cached_property
    def use(self) -> MachineUse:
        use = machine_use(self.frame, self.begin, self.end, self.size, self.large, self.down)
        return split_as_recorded(use, self.recorded)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        return _jobs(self.frame, self.begin)

    def months(self) -> tuple[list[str], Floats]:
        """Names, and the edges between them, the period's own at both ends."""
        moment = self._local(self.begin)
        year, month = moment.year, moment.month
        names, edges = [], [self.begin]
        while edges[-1] < self.end:
            names.append(f"{year:04}-{month:02}")
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            edges.append(min(self._epoch(year, month), self.end))
        return names, np.array(edges)

    def month_of(self, times: pl.Series) -> pl.Series:
        names, edges = self.months()
        at = np.clip(np.searchsorted(edges, times.to_numpy(), side="right") - 1, 0, len(names) - 1)
        return pl.Series(np.array(names, dtype=object)[at].tolist(), dtype=pl.String)

    def _local(self, time: float) -> datetime:
        moment = datetime.fromtimestamp(time, UTC)
        return moment.astimezone(self.zone) if self.zone else moment.astimezone()

    def _epoch(self, year: int, month: int) -> float:
        return datetime(year, month, 1, tzinfo=self.zone).timestamp()


def log_report(
    records: JobRecords,
    size: MachineSize,
    large: float | int | None = None,
    zone: tzinfo | None = None,
    since: float | None = None,
    until: float | None = None,
    down: Sequence[Down] = (),
    by_slurm: SlurmUtilization | None = None,
    named_user: str | None = None,
    recorded: Sequence[IdleHour] = (),
) -> LogReport:
    """The report on a log from ``since`` to ``until``; NothingFound if no job of the log is in that period.

    large     cores above which a job is large; below 1 a share of the machine; None: ``LARGE_SHARE``
    recorded  all hours of which the daemon knows why cores were idle
    """
    frame = records.frame
    first, last = _span(frame)
    begin, end = first if since is None else since, last if until is None else until
    # Slurm's times are whole seconds: a job may end in the second in which it was submitted, the period's first.
    # The log's last record may be of a submission, which no later time makes known.
    submitted = pl.col("submit") <= end if until is None else pl.col("submit") < end
    chosen = frame.filter(submitted & (pl.coalesce("end", pl.lit(np.inf)) >= begin))
    if not len(chosen) or begin >= end:
        known = " to ".join(local_time(time, zone) for time in (first, last))
        raise NothingFound(f"{records.report.path}: no job in the period; the log is from {known}")
    share = LARGE_SHARE if large is None else large
    cores = size.cores
    if share < 1:
        cores = cores or int(machine_use(chosen, begin, end, size, 0).used.max())
        share = max(1, int(share * cores))
    hours = covering(recorded, begin, end)
    return LogReport(records, chosen, begin, end, size, int(share), zone, tuple(down), by_slurm, named_user, hours)


def _span(frame: pl.DataFrame) -> tuple[float, float]:
    times = frame.select(
        pl.col("submit").min().alias("first"), pl.max_horizontal(pl.max("submit"), pl.max("start"), pl.max("end"))
    ).row(0)
    return float(times[0]), float(max(times[1], times[0] + 1))


def _jobs(frame: pl.DataFrame, begin: float) -> pl.DataFrame:
    """Jobs submitted from ``begin`` on, their last run, with the seconds

    wait           from the first submission to the first start; null: never started
    eligible_wait  from eligibility, where that is known, else from submission
    turnaround     from the first submission to the last end; null: has not run to an end
    slowdown       bounded: turnaround over run, of at least 10 s; null likewise
    """
    jobs = frame.filter(pl.col("is_last") & (pl.col("first_submit") >= begin))
    from_eligible = pl.max_horizontal(
        "first_submit", pl.min_horizontal(pl.coalesce("first_eligible", "first_submit"), "first_start")
    )
    turnaround = pl.when(pl.col("start").is_not_null()).then(pl.col("end") - pl.col("first_submit"))
    # clip leaves null what is null; max_horizontal would pass over it.
    slowdown = (turnaround / pl.col("run").clip(_BOUND)).clip(1.0)
    return jobs.with_columns(
        (pl.col("first_start") - pl.col("first_submit")).alias("wait"),
        (pl.col("first_start") - from_eligible).alias("eligible_wait"),
        turnaround.alias("turnaround"),
        slowdown.alias("slowdown"),
        _class_of_size().alias("size"),
        _class_of_length().alias("length"),
    )


CLASSES = {
    "size": (
        *(
            f"{high:,}" if high == low + 1 else f"{low + 1:,} to {high:,}"
            for low, high in zip((0, *_SIZES), _SIZES, strict=False)
        ),
        f"over {_SIZES[-1]:,}",
    ),
    "length": (*(label for _, label in _LENGTHS), "over 24 h", "unknown"),
}
"""In ascending order."""


def _class_of_size() -> pl.Expr:
    found = pl.lit(CLASSES["size"][-1])
    for high, label in reversed(list(zip(_SIZES, CLASSES["size"], strict=False))):
        found = pl.when(pl.col("cpus") <= high).then(pl.lit(label)).otherwise(found)
    return found


def _class_of_length() -> pl.Expr:
    found = pl.lit("over 24 h")
    for seconds, label in reversed(_LENGTHS):
        found = pl.when(pl.col("run") <= seconds).then(pl.lit(label)).otherwise(found)
    # The run time of a job that still runs is not known.
    unknown = pl.col("run").is_null() | pl.col("end").is_null()
    return pl.when(unknown).then(pl.lit("unknown")).otherwise(found)
