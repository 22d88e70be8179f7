"""How long jobs waited, by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from omfs_daemon.reports.job_groups import figures_by_group
from omfs_daemon.reports.log_report import LogReport

WAIT_COLUMNS = (
    *("group", "value", "jobs", "mean", "median", "p95", "max"),
    *("mean_eligible", "mean_run", "mean_turnaround", "mean_bounded_slowdown"),
)


def wait_rows(report: LogReport, groups: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """All jobs that started, then those of each value of each group, most jobs first; times in seconds.

    Run time, turnaround, and slowdown are of those that have ended.
    """
    started = report.jobs.filter(pl.col("wait").is_not_null())
    figures = (
        pl.len().alias("jobs"),
        pl.col("wait").mean().alias("mean"),
        pl.col("wait").median().alias("median"),
        pl.col("wait").quantile(0.95, "linear").alias("p95"),
        pl.col("wait").max().alias("max"),
        pl.col("eligible_wait").mean().alias("mean_eligible"),
        pl.col("run").filter(pl.col("turnaround").is_not_null()).mean().alias("mean_run"),
        pl.col("turnaround").mean().alias("mean_turnaround"),
        pl.col("slowdown").mean().alias("mean_bounded_slowdown"),
    )
    yield from figures_by_group(report, started, groups, figures)
