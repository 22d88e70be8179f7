"""The files of a report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from omfs_daemon.reports.csv_files import printable, write_csv
from omfs_daemon.reports.end_figures import (
    EFFICIENCY_COLUMNS,
    END_COLUMNS,
    LOST_COLUMNS,
    efficiency_rows,
    end_rows,
    lost_rows,
)
from omfs_daemon.reports.hole_inputs import seconds_text
from omfs_daemon.reports.hole_tables import HOLE_JOB_COLUMNS, hole_job_rows
from omfs_daemon.reports.idle_figures import IDLE_COLUMNS, PROFILE_COLUMNS, idle_rows, profile_rows
from omfs_daemon.reports.log_holes import HOLE_COLUMNS, LogHole, hole_rows
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.month_figures import MONTH_COLUMNS, month_rows
from omfs_daemon.reports.report_summary import report_values
from omfs_daemon.reports.wait_figures import WAIT_COLUMNS, wait_rows
from omfs_daemon.reports.whole_period import IdleUse
from omfs_daemon.simulate.results.result_files import save


def write_report(
    out: Path, report: LogReport, groups: tuple[str, ...], holes: list[LogHole], top: int, whole: IdleUse | None = None
) -> dict[str, Any]:
    """All tables and report.json into a directory that exists; what report.json holds (``report_values``)."""
    write_csv(out / "months.csv", MONTH_COLUMNS, month_rows(report))
    write_csv(out / "waits.csv", WAIT_COLUMNS, wait_rows(report, groups))
    write_csv(out / "idle.csv", IDLE_COLUMNS, idle_rows(report))
    write_csv(out / "profile.csv", PROFILE_COLUMNS, profile_rows(report))
    write_csv(out / "holes.csv", HOLE_COLUMNS, hole_rows(holes))
    for hole in holes:
        write_csv(
            out / f"hole-{_file_name(hole.job_id)}.csv", HOLE_JOB_COLUMNS, hole_job_rows(hole.filled, seconds_text)
        )
    write_csv(out / "ends.csv", END_COLUMNS, end_rows(report))
    write_csv(out / "lost.csv", LOST_COLUMNS, lost_rows(report, top))
    write_csv(out / "efficiency.csv", EFFICIENCY_COLUMNS, efficiency_rows(report, groups))
    values: dict[str, Any] = json_value(report_values(report, groups, holes, top, whole))
    save(out / "report.json", lambda file: file.write((json.dumps(values, indent=2) + "\n").encode()))
    return values


def json_value(value: Any) -> Any:
    """For JSON: numbers that are none are null, and texts without control characters."""
    if isinstance(value, dict):
        return {key: json_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return printable(value) if isinstance(value, str) else value


def _file_name(job_id: str) -> str:
    return "".join(char if char.isalnum() or char in "._" else "_" for char in job_id)
