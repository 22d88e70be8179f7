"""The experiment of Nickolay et al. (2021): which simulations there are, and what they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.experiments.nickolay2021.against_optimum import OptimumRow, optimum_rows
from omfs_daemon.simulate.experiments.nickolay2021.mira_weeks import StudyWeek, weeks_of
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_cases import (
    BESIDE,
    COMPARED,
    measured_week,
    week_cases,
)
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_rows import (
    CategoryRow,
    Results,
    SettingRow,
    WeekRow,
    category_rows,
    setting_rows,
    week_rows,
)
from omfs_daemon.simulate.results.result_files import prepare, save
from omfs_daemon.simulate.results.result_rows import write_rows
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, compile_for, run_all

SMALL_LOGS = 60


@dataclass(frozen=True, slots=True)
class ExperimentSize:
    """draws: of the real-time jobs; logs: whose optimum is sought; optimum_seconds: for each."""

    draws: int = 10
    logs: int = SMALL_LOGS
    optimum_seconds: float = 20.0


QUICK = ExperimentSize(draws=2, logs=10, optimum_seconds=4.0)


@dataclass(frozen=True, slots=True)
class NickolayResults:
    """``optimum``: empty without the solver."""

    weeks: Sequence[StudyWeek]
    results: Results
    optimum: Sequence[OptimumRow]


def run_nickolay2021(setup: ExperimentSetup, size: ExperimentSize) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds without compiling; ConfigError for a missing trace."""
    prepare(setup.out)
    begin = setup.clock()
    weeks = list(weeks_of(setup.traces, setup.environment))
    loaded = setup.clock()
    compile_for(variant.policy for variant in (*COMPARED, *BESIDE))
    begin += setup.clock() - loaded
    results = simulate_weeks(weeks, size.draws, setup.where, setup.progress)
    seconds = setup.clock() - begin
    found = NickolayResults(weeks, results, _optimum(size, setup))
    return write_nickolay2021(setup.out, found, seconds), setup.clock() - begin


def simulate_weeks(
    weeks: Sequence[StudyWeek], draws: int, where: int | SlurmArray = 1, progress: Progress | None = None
) -> Results:
    """All simulations of these weeks."""
    wanted = [one for week in weeks for one in week_cases(week, draws)]
    windows = {week.jobs.name: (week.begin, week.end) for week in weeks}
    found = run_all([one.case for one in wanted], partial(measured_week, windows=windows), where, progress)
    return {one.key: result for one, result in zip(wanted, found, strict=True)}


def _optimum(size: ExperimentSize, setup: ExperimentSetup) -> list[OptimumRow]:
    if find_spec("ortools") is None:
        return []

    def report(done: int) -> None:
        if setup.progress is not None:
            setup.progress(done, size.logs, "optimum of small logs")

    return list(optimum_rows(range(size.logs), size.optimum_seconds, setup.clock, report))


def write_nickolay2021(out: Path, found: NickolayResults, seconds: float) -> Path:
    """results.csv, categories.csv, settings.csv, optimum.csv, plots and index.md into a directory that exists; the
    page's path. ``seconds``: that the simulations took."""
    # Both are for this only, and load slowly.
    from omfs_daemon.simulate.experiments.nickolay2021 import nickolay2021_page, nickolay2021_plots

    write_rows(out / "results.csv", WeekRow, list(week_rows(found.results)))
    _write_categories(out / "categories.csv", list(category_rows(found.results)))
    write_rows(out / "settings.csv", SettingRow, list(setting_rows(found.results)))
    write_rows(out / "optimum.csv", OptimumRow, found.optimum)
    plots = nickolay2021_plots.draw_nickolay2021(out, found.results, found.optimum)
    return nickolay2021_page.write_nickolay2021_page(out, found.weeks, found.results, found.optimum, plots, seconds)


def _write_categories(path: Path, rows: Sequence[CategoryRow]) -> None:
    """The column is called class, which no attribute can be."""
    names = [field.name for field in fields(CategoryRow)]
    table = pl.DataFrame([asdict(row) for row in rows], schema=names).rename({"class_": "class"}).fill_nan(None)
    save(path, lambda file: table.write_csv(file))
