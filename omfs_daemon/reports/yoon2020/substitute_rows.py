"""What the substitute for Tachyon2's log gives, beside what is published of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.accounting.job_records import JobRecords, record_frame, with_runs
from omfs_daemon.accounting.local_times import zone_named
from omfs_daemon.accounting.read_report import ReadReport
from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.log_report import LogReport, log_report
from omfs_daemon.reports.machine_use import MachineSize
from omfs_daemon.reports.month_figures import MONTH_COLUMNS, month_rows
from omfs_daemon.reports.yoon2020.substitute import (
    CORES_EACH,
    LARGE_NODES,
    Substitute,
    SubstituteModel,
    at_load,
    conservatively,
    substitute,
    undone,
)

BEGIN = 1_451_606_400.0
"""1 January 2016: the published period."""
SHARES = (0.02, 0.03, 0.04)
"""Of wide jobs in the months of the hump; Figure 3 has no numbers."""
DRAWS = 3
FULL_LOAD = 1.0
QUEUE, BACKFILLING = "fcfs, wide jobs first", "conservative"


class WorkloadResult(NamedTuple):
    """A row of results.csv; waits in seconds."""

    workload: str
    policy: str
    mean_wait: float | None
    mean_turnaround: float | None
    utilisation: float | None
    large_idle_correlation: float | None
    accepted_core_hours: float | None


class SubstituteCase(NamedTuple):
    """One workload, in the queue as Tachyon2 had it and with backfilling.

    undone  seconds that the whole machine needs for what waits in that queue, at the end of the month with most
    """

    model: SubstituteModel
    seed: int
    load: float
    queue: WorkloadResult
    backfilling: WorkloadResult
    months: list[tuple[Value, ...]]
    undone: float


def substitute_cases(
    progress: Callable[[int, int, str], None] | None, shares: tuple[float, ...] = SHARES, draws: int = DRAWS
) -> Iterator[SubstituteCase]:
    """Each share of wide jobs, each draw; the last case is one more, of a load of ``FULL_LOAD``."""
    total = len(shares) * draws + 1
    for number in range(total):
        is_full = number == total - 1
        share, seed = (shares[len(shares) // 2], 0) if is_full else (shares[number // draws], number % draws)
        model = SubstituteModel(wide=share)
        found = at_load(model, FULL_LOAD, seed) if is_full else substitute(model, seed)
        yield substitute_case(found, seed)
        if progress is not None:
            progress(number + 1, total, f"{share:.0%} wide jobs, draw {seed}")


def substitute_case(found: Substitute, seed: int) -> SubstituteCase:
    name = f"substitute, {found.model.wide:.0%} wide jobs, load {found.load:.3f}, draw {seed}"
    queue, backfilling = (_report(found, start, name) for start in (found.start, conservatively(found)))
    return SubstituteCase(
        found.model, seed, found.load, result_of(queue, name, QUEUE, None),
        result_of(backfilling, name, BACKFILLING, None), list(month_rows(queue)), float(undone(found).max()),
    )  # fmt: skip


def result_of(report: LogReport, workload: str, policy: str, accepted: float | None) -> WorkloadResult:
    use, jobs = report.use, report.jobs
    up = use.core_seconds(use.available - use.down)
    wait, turnaround = jobs.select(pl.mean("wait"), pl.mean("turnaround").alias("over")).row(0)
    used = use.core_seconds(use.used) / up if up else None
    return WorkloadResult(workload, policy, wait, turnaround, used, large_idle_correlation(report), accepted)


def large_idle_correlation(report: LogReport) -> float | None:
    """Of large jobs and the share of idle cores by month; None with fewer than three months, or without large jobs."""
    at = [MONTH_COLUMNS.index(name) for name in ("large_jobs", "idle_cores", "available_cores")]
    rows = np.array([[float(row[one] or 0) for one in at] for row in month_rows(report)])
    if len(rows) < 3 or not rows[:, 0].std() or not rows[:, 1].std():
        return None
    return float(np.corrcoef(rows[:, 0], rows[:, 1] / np.maximum(rows[:, 2], 1))[0, 1])


def _report(found: Substitute, start: Floats, name: str) -> LogReport:
    jobs, model = found.jobs, found.model
    begin = BEGIN + start
    raw = pl.DataFrame({"place": np.arange(1, len(start) + 1)})
    frame = record_frame(
        {
            "place": raw["place"],
            "job_id": raw["place"].cast(pl.String),
            "submit": pl.Series(BEGIN + jobs.submit),
            "start": pl.Series(begin),
            "end": pl.Series(begin + jobs.run),
            "run": pl.Series(jobs.run),
            "cpus": pl.Series(jobs.nodes * CORES_EACH),
            "limit": pl.Series(jobs.limit),
            "state": pl.repeat("COMPLETED", len(start), dtype=pl.String, eager=True),
        },
        raw,
    )
    records = JobRecords(with_runs(frame, frozenset())[0], ReadReport(Path(name), len(start)))
    size = MachineSize(model.nodes * CORES_EACH, "of Tachyon2")
    large = LARGE_NODES * CORES_EACH * model.nodes // 3200
    return log_report(records, size, large, zone_named("UTC"), BEGIN, BEGIN + model.span)
