"""The figures of a period in one screen, as values for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from omfs_daemon.accounting.local_times import local_time
from omfs_daemon.reports.end_figures import (
    EFFICIENCY_COLUMNS,
    END_COLUMNS,
    LOST_COLUMNS,
    efficiency_rows,
    end_rows,
    ends_by_state,
    lost_rows,
)
from omfs_daemon.reports.idle_figures import heap_shares
from omfs_daemon.reports.log_holes import HOLE_COLUMNS, LogHole
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.month_figures import MONTH_COLUMNS, hours_of_week, month_rows
from omfs_daemon.reports.recorded_idle import covered_seconds
from omfs_daemon.reports.wait_figures import WAIT_COLUMNS, wait_rows
from omfs_daemon.reports.whole_period import IdleUse

HOUR = 3600.0


def summary_of(report: LogReport) -> dict[str, Any]:
    """Times in seconds since the epoch, durations in seconds, cores and core hours; ``jobs``: of which count all is, of
    them ``started``, and of these ``ended``."""
    use, jobs = report.use, report.jobs
    waits = dict(zip(WAIT_COLUMNS[2:], next(wait_rows(report, ()))[2:], strict=True))
    started = jobs["wait"].is_not_null()
    whole = use.core_seconds(use.available - use.down)
    return {
        "begin": report.begin,
        "end": report.end,
        "records": report.records.report.records,
        "jobs": len(jobs),
        "started": int(started.sum()),
        "ended": int(jobs["turnaround"].is_not_null().sum()),
        "large_above": report.large,
        "large_jobs": int((jobs["cpus"] > report.large).sum()),
        "cores": int(use.available.max()) if report.size.cores is None else report.size.cores,
        "cores_source": report.size.source,
        "available_core_hours": use.core_seconds(use.available) / HOUR,
        "used_core_hours": use.core_seconds(use.used) / HOUR,
        "idle_core_hours": use.core_seconds(use.idle) / HOUR,
        "down_core_hours": use.core_seconds(use.down) / HOUR,
        "utilisation": use.core_seconds(use.used) / whole if whole else None,
        "sreport": _beside_sreport(report),
        "shares": heap_shares(report),
        "waits": waits,
        "jobs_with_eligible_time": int((started & jobs["first_eligible"].is_not_null()).sum()),
        "ends": ends_by_state(report),
    }


def _beside_sreport(report: LogReport) -> dict[str, Any] | None:
    """The utilization of the whole hours of the period, by sreport and by these records."""
    slurm, use = report.by_slurm, report.use
    if slurm is None:
        return None
    edges = np.array([slurm.begin, slurm.end])
    used, up = (float(use.between(cores, edges)[0]) for cores in (use.used, use.available - use.down))
    theirs = slurm.reported - slurm.down
    return {
        "begin": slurm.begin,
        "end": slurm.end,
        "utilisation": slurm.allocated / theirs if theirs else None,
        "ours": used / up if up else None,
    }


def sources_of(report: LogReport) -> dict[str, Any]:
    """What was read, and what was left out of it."""
    read = report.records.report
    return {
        "file": str(read.path),
        "records": read.records,
        "dropped": [{"reason": reason, "records": count} for reason, count in read.dropped],
        "malformed": [{"place": place, "why": why} for place, why in read.malformed],
        "notes": [*read.notes, *_beyond_note(report), *_recorded_note(report)],
        "recorded_seconds": covered_seconds(report.recorded, report.begin, report.end),
        "disagreements": [
            {"column": one.what, "records": one.often, "first": list(one.first)} for one in report.records.disagreements
        ],
    }


def _beyond_note(report: LogReport) -> Iterator[str]:
    """Whether the log uses more cores than its machine is said to have."""
    size, use = report.size, report.use
    if size.cores is not None and (beyond := use.used > size.cores).any():
        share = float(use.seconds[beyond].sum()) / (report.end - report.begin)
        words = f"{100 * share:.1f} %" if share >= 0.001 else "less than 0.1 %"
        yield (
            f"the log uses more than {size.cores:,} cores ({size.source}) in {words} of the time, up to "
            f"{int(use.used.max()):,}; utilization counts the used ones as available"
        )


def _recorded_note(report: LogReport) -> Iterator[str]:
    """For which part of the period the daemon says why cores were idle."""
    if hours := report.recorded:
        covered = covered_seconds(hours, report.begin, report.end) / HOUR
        first, last = max(report.begin, hours[0].begin), min(report.end, hours[-1].begin + HOUR)
        yield (
            f"why cores were idle: as omfsd recorded it in {covered:,.1f} of {(report.end - report.begin) / HOUR:,.1f} "
            f"hours, {local_time(first, report.zone)} to {local_time(last, report.zone)}"
        )


def report_values(
    report: LogReport, groups: tuple[str, ...], holes: list[LogHole], top: int, whole: IdleUse | None = None
) -> dict[str, Any]:
    """All of it; ``top``: of so many names and users what was lost; ``whole``: what all idle cores of the period could
    have done, if that was asked for."""

    def table(columns: tuple[str, ...], rows: Any) -> list[dict[str, Any]]:
        return [dict(zip(columns, row, strict=True)) for row in rows]

    return {
        "schema": 1,
        "sources": sources_of(report),
        "summary": summary_of(report),
        "months": table(MONTH_COLUMNS, month_rows(report)),
        "hours_of_week": hours_of_week(report),
        "waits": table(WAIT_COLUMNS, wait_rows(report, groups)),
        "holes": table(HOLE_COLUMNS, (hole.row() for hole in holes)),
        "all_holes": None if whole is None else whole.values(),
        "ends": table(END_COLUMNS, end_rows(report)),
        "lost": table(LOST_COLUMNS, lost_rows(report, top)),
        "efficiency": table(EFFICIENCY_COLUMNS, efficiency_rows(report, groups)),
    }
