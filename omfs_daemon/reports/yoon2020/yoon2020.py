"""Yoon et al. (2020): what conservative backfilling puts into the hole that a large job leaves."""

from __future__ import annotations

from pathlib import Path

from omfs_daemon.reports.csv_files import write_csv
from omfs_daemon.reports.hole_tables import HOLE_JOB_COLUMNS, hole_job_rows
from omfs_daemon.reports.month_figures import MONTH_COLUMNS
from omfs_daemon.reports.yoon2020.figure8 import LATEST_START, figure8
from omfs_daemon.reports.yoon2020.real_logs import found_logs, recorded_logs
from omfs_daemon.reports.yoon2020.substitute_rows import WorkloadResult, substitute_cases
from omfs_daemon.reports.yoon2020.usage_page import usage_parts
from omfs_daemon.reports.yoon2020.yoon2020_page import write_yoon2020_page
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.results.result_files import prepare

_PROFILE_COLUMNS = ("time", "idle", "job_id", "free_after", "printed", "same")


def run_yoon2020(setup: ExperimentSetup, is_generated: bool = False) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds; with the substitute for Tachyon2's log if ``is_generated``.
    ConfigError, before anything is computed, for a log that is missing where it was said to be."""
    available = found_logs(setup)
    prepare(setup.out)
    begin = setup.clock()
    found = figure8()
    rows = hole_job_rows(found.hole, found.inputs.written)
    write_csv(setup.out / "figure8.csv", HOLE_JOB_COLUMNS, rows)
    write_csv(
        setup.out / "figure8-profile.csv",
        _PROFILE_COLUMNS,
        ((cell.time, cell.idle, cell.job_id, cell.free_after, cell.printed, cell.same) for cell in found.cells),
    )
    cases = list(substitute_cases(setup.progress)) if is_generated else []
    logs = recorded_logs(setup, available.paths)
    results = [WorkloadResult("figure 8", "conservative", None, None, None, None, found.hole.core_hours)]
    results += [result for case in cases for result in (case.queue, case.backfilling)]
    results += [log.result for log in logs]
    write_csv(setup.out / "results.csv", WorkloadResult._fields, results)
    months = ((case.queue.workload, case.queue.policy, *row) for case in cases for row in case.months)
    write_csv(setup.out / "months.csv", ("workload", "policy", *MONTH_COLUMNS), months)
    parts = list(usage_parts(cases, logs, available.missing))
    return write_yoon2020_page(setup.out, found, figure8(LATEST_START), parts), setup.clock() - begin
