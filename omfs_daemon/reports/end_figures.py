"""How jobs ended, and how what they asked for compares with what they used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.job_groups import figures_by_group, in_group
from omfs_daemon.reports.log_report import LogReport

END_COLUMNS = ("state", "code", "jobs", "core_hours", "share")
EFFICIENCY_COLUMNS = (
    *("group", "value", "jobs", "limit_used_median", "timeouts", "under_10_percent"),
    *("cpu_efficiency", "memory_efficiency", "gpu_hours", "unused_gpu_hours"),
)

LOST_COLUMNS = ("group", "value", "jobs", "core_hours", "share")

_LITTLE = 0.1
_FIGURES = (
    pl.len().alias("jobs"),
    (pl.col("cpus") * (pl.col("end") - pl.coalesce("start", "end")) / 3600.0).sum().alias("core_hours"),
)


def end_rows(report: LogReport) -> Iterator[tuple[Value, ...]]:
    """Runs that ended in the period, by state and code, most core hours first; ``share``: of all core hours."""
    found = _ended(report).group_by("state", "code").agg(*_FIGURES)
    total = float(found["core_hours"].sum())
    for row in found.sort(["core_hours", "jobs", "state", "code"], descending=[True, True, False, False]).iter_rows():
        yield (*row, row[3] / total if total else None)


def ends_by_state(report: LogReport) -> dict[str, int]:
    """The same runs, counted by state, most first."""
    found = _ended(report).group_by("state").len().sort(["len", "state"], descending=[True, False])
    return dict(found.iter_rows())


def lost_rows(report: LogReport, top: int) -> Iterator[tuple[Value, ...]]:
    """Of the runs that ended in the period and did not complete, the names of jobs, then the users, with most core
    hours, ``top`` each; ``share``: of the core hours of all runs that ended."""
    ended = _ended(report)
    total = float(ended.select(_FIGURES[1]).item())
    lost = ended.filter(pl.col("state") != "COMPLETED")
    for group in ("name", "user"):
        found = in_group(report, lost, group).group_by(group).agg(*_FIGURES)
        for row in found.sort(["core_hours", "jobs", group], descending=[True, True, False]).head(top).iter_rows():
            yield (group, *row, row[2] / total if total else None)


def _ended(report: LogReport) -> pl.DataFrame:
    return report.frame.filter(pl.col("end").is_between(report.begin, report.end))


def efficiency_rows(report: LogReport, groups: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """All jobs that ran and have ended, then those of each value of each group. Empty: no record says it.

    limit_used_median  of the run time over the limit
    under_10_percent   jobs that used less of their limit
    cpu_efficiency     seconds that processes computed over core seconds held, of all jobs together
    memory_efficiency  the greatest use over what was asked for, likewise
    gpu_hours          that jobs had GPUs; empty: none had any
    unused_gpu_hours   of them those of jobs whose steps never used one, as often as Slurm looked; empty: it never did
    """
    ran = report.jobs.filter(pl.col("turnaround").is_not_null() & pl.col("run").is_not_null())
    share = pl.col("run") / pl.col("limit")
    known_cpu = pl.col("cpu_seconds").is_not_null()
    known_memory = pl.col("memory_used").is_not_null() & pl.col("memory_asked").is_not_null()
    held = (pl.col("cpus") * pl.col("run")).filter(known_cpu).sum()
    asked = pl.col("memory_asked").filter(known_memory).sum()
    gpu_hours = pl.col("gpus") * pl.col("run") / 3600.0
    figures = (
        pl.len().alias("jobs"),
        share.filter(pl.col("limit") > 0).median().alias("limit_used"),
        (pl.col("state") == "TIMEOUT").sum().alias("timeouts"),
        ((share < _LITTLE) & (pl.col("limit") > 0)).sum().alias("little"),
        pl.when(held > 0).then(pl.col("cpu_seconds").sum() / held).alias("cpu"),
        pl.when(asked > 0).then(pl.col("memory_used").filter(known_memory).sum() / asked).alias("memory"),
        pl.when((pl.col("gpus") > 0).any()).then(gpu_hours.sum()).alias("gpu_hours"),
        pl.when(((pl.col("gpus") > 0) & pl.col("gpu_use").is_not_null()).any())
        .then(gpu_hours.filter(pl.col("gpu_use") == 0).sum())
        .alias("unused"),
    )
    yield from figures_by_group(report, ran, groups, figures)
