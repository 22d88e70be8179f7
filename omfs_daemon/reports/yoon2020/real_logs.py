"""Recorded logs beside the paper: the whole report on each, and a row of results."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from omfs_daemon.accounting.local_times import zone_named
from omfs_daemon.accounting.read_log import LogOptions, read_log
from omfs_daemon.accounting.trace_files import VARIABLE, trace
from omfs_daemon.reports.idle_figures import heap_shares
from omfs_daemon.reports.job_groups import USUAL_GROUPS
from omfs_daemon.reports.log_holes import log_holes
from omfs_daemon.reports.log_report import log_report
from omfs_daemon.reports.machine_use import recorded_size
from omfs_daemon.reports.report_files import write_report
from omfs_daemon.reports.report_page import write_report_pages
from omfs_daemon.reports.report_plots import draw_report, period_words
from omfs_daemon.reports.yoon2020.substitute_rows import WorkloadResult, result_of
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.results.result_files import prepare

LOGS = {
    "curie": "CEA-Curie-2011-2.1-cln.swf.gz",
    "kth-sp2": "KTH-SP2-1996-2.1-cln.swf.gz",
    "sdsc-ds": "SDSC-DS-2004-2.1-cln.swf.gz",
    "mira": "mira-2018.csv.gz",
}
"""By the directory of its report."""

_TOP = 10
"""So many holes, and names and users of what was lost."""


class RecordedLog(NamedTuple):
    """``heaps``: shares of the machine; ``holes``: how many of the worst; ``fit``, ``waited``: jobs in them."""

    directory: str
    file: str
    result: WorkloadResult
    heaps: dict[str, float]
    holes: int
    fit: int
    waited: int
    idle_core_hours: float


class FoundLogs(NamedTuple):
    """``paths``: by the directory of their reports; ``missing``: files that are not where OMFS_TRACES says."""

    paths: dict[str, Path]
    missing: tuple[str, ...]


def found_logs(setup: ExperimentSetup) -> FoundLogs:
    """None if no directory of traces is known; ConfigError if a log is missing in one that was asked for: that of the
    environment is for other experiments, too."""
    if setup.traces is not None:
        return FoundLogs({name: trace(file, setup.traces, setup.environment) for name, file in LOGS.items()}, ())
    if not setup.environment.get(VARIABLE):
        return FoundLogs({}, ())
    directory = Path(setup.environment[VARIABLE])
    paths = {name: directory / file for name, file in LOGS.items() if (directory / file).is_file()}
    return FoundLogs(paths, tuple(file for name, file in LOGS.items() if name not in paths))


def recorded_logs(setup: ExperimentSetup, paths: dict[str, Path]) -> list[RecordedLog]:
    """The reports on these logs, each written into its directory."""
    found = []
    for number, (name, path) in enumerate(paths.items(), 1):
        found.append(_recorded(name, path, setup.out / name))
        if setup.progress is not None:
            setup.progress(number, len(paths), path.name)
    return found


def _recorded(name: str, path: Path, out: Path) -> RecordedLog:
    zone = zone_named("UTC")
    records = read_log(path, LogOptions(zone=zone))
    report = log_report(records, recorded_size(records.facts), zone=zone)
    holes = log_holes(report, top=_TOP)
    prepare(out)
    values = write_report(out, report, USUAL_GROUPS, holes, _TOP)
    write_report_pages(out, values, draw_report(out, report, holes), period_words(report))
    rows = [hole.filled for hole in holes]
    accepted = sum(hole.core_hours for hole in rows)
    return RecordedLog(
        name,
        path.name,
        result_of(report, path.name, "as recorded", accepted),
        heap_shares(report),
        len(holes),
        sum(int(hole.accepted.sum()) for hole in rows),
        sum(len(hole.queue.job_id) for hole in rows),
        sum(hole.idle_core_hours for hole in rows),
    )
