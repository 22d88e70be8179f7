"""Figures month by month (Yoon et al. 2020, Figures 3 and 4), and use by the hour of the week."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.simulate.results.timeline import means, steps

HOUR = 3600.0

MONTH_COLUMNS = (
    *("month", "jobs", "large_jobs", "core_hours", "large_core_hours"),
    *("available_cores", "used_cores", "idle_cores", "down_cores", "utilisation"),
    *("mean_wait", "median_wait", "p95_wait", "mean_eligible_wait", "mean_turnaround"),
)


def month_rows(report: LogReport) -> Iterator[tuple[Value, ...]]:
    """A job counts in the month of its submission, cores and core hours in the month in which they were held."""
    names, edges = report.months()
    use = report.use
    available, used, idle, down = (use.means(cores, edges) for cores in (use.available, use.used, use.idle, use.down))
    large_hours = _large_cores(report, edges) * np.diff(edges) / HOUR
    jobs = report.jobs.with_columns(report.month_of(report.jobs["first_submit"]).alias("month"))
    figures = {
        row[0]: row[1:]
        for row in jobs.group_by("month")
        .agg(
            pl.len(),
            (pl.col("cpus") > report.large).sum(),
            pl.col("wait").mean().alias("mean"),
            pl.col("wait").median().alias("median"),
            pl.col("wait").quantile(0.95, "linear").alias("p95"),
            pl.col("eligible_wait").mean(),
            pl.col("turnaround").mean(),
        )
        .iter_rows()
    }
    for at, name in enumerate(names):
        count, large, *waits = figures.get(name, (0, 0, None, None, None, None, None))
        hours = float(edges[at + 1] - edges[at]) / HOUR
        up = float(available[at] - down[at])
        yield (
            *(name, count, large, float(used[at]) * hours, float(large_hours[at])),
            *(float(available[at]), float(used[at]), float(idle[at]), float(down[at])),
            *(float(used[at]) / up if up else None, *waits),
        )


def _large_cores(report: LogReport, edges: Floats) -> Floats:
    large = report.frame.filter((pl.col("cpus") > report.large) & pl.col("start").is_not_null())
    begin, end = large["start"].to_numpy(), large["end"].fill_null(report.end).to_numpy()
    return means(steps(begin, np.maximum(begin, end), large["cpus"].to_numpy().astype(np.float64)), edges)


def hours_of_week(report: LogReport) -> list[float | None]:
    """Share of the available cores that is used in each of the 168 hours from Monday 0:00; None: not in the period."""
    use = report.use
    edges = np.arange(np.floor(report.begin / HOUR), np.ceil(report.end / HOUR) + 1) * HOUR
    used, available = use.between(use.used, edges), use.between(use.available - use.down, edges)
    first = datetime.fromtimestamp(float(edges[0]), UTC).astimezone(report.zone)
    # Hours are counted on; when clocks change, those of that week are one off.
    at = (first.weekday() * 24 + first.hour + np.arange(len(used))) % 168
    used_by_hour, all_by_hour = (np.bincount(at, weights=cores, minlength=168) for cores in (used, available))
    return [float(part / whole) if whole else None for part, whole in zip(used_by_hour, all_by_hour, strict=True)]
