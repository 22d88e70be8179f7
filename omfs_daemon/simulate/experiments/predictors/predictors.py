"""Predictors of run times on four recorded workloads: how accurate they are, what EASY makes of them, and how good
estimates of starts are by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.trace_files import trace
from omfs_daemon.predict.gbm_training import lightgbm_is_installed
from omfs_daemon.simulate.engine.model_round import BY_MODEL
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.experiments.predictors.effects import COUNTED, PLANNED, simulate_effects
from omfs_daemon.simulate.experiments.predictors.predictor_cases import (
    POLICIES_COMPARED,
    PREDICTORS_COMPARED,
    EffectRow,
    PredictorResults,
    PredictorRow,
    StartRow,
    conventions_of,
    predictor_of,
)
from omfs_daemon.simulate.experiments.predictors.starts import STARTS_UNDER, simulate_starts
from omfs_daemon.simulate.results.measure import per_job
from omfs_daemon.simulate.results.prediction_figures import prediction_figures
from omfs_daemon.simulate.results.result_files import prepare
from omfs_daemon.simulate.results.result_rows import write_rows
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, SweepCase, compile_for, run_all
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.workload import Workload


class RecordedTrace(NamedTuple):
    """``cpus``: of its machine."""

    name: str
    file: str
    cpus: int


TRACES = (
    RecordedTrace("KTH-SP2", "KTH-SP2-1996-2.1-cln.swf.gz", 100),
    RecordedTrace("SDSC-DS", "SDSC-DS-2004-2.1-cln.swf.gz", 1664),
    RecordedTrace("LANL-CM5", "LANL-CM5-1994-4.1-cln.swf.gz", 1024),
    RecordedTrace("CEA-Curie", "CEA-Curie-2011-2.1-cln.swf.gz", 93312),
)


def run_predictors(setup: ExperimentSetup) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds without compiling; ConfigError for a missing trace."""
    prepare(setup.out)
    paths = [trace(one.file, setup.traces, setup.environment) for one in TRACES]
    compile_for((*POLICIES_COMPARED, *COUNTED, *PLANNED, *STARTS_UNDER))
    is_left_out = not lightgbm_is_installed()
    predictors = [name for name in PREDICTORS_COMPARED if not (is_left_out and name == BY_MODEL)]
    begin = setup.clock()
    loaded = [load_trace(path) for path in paths]
    recorded = [
        (replace(found.workload, name=one.name), Machine(one.cpus)) for one, found in zip(TRACES, loaded, strict=True)
    ]
    rows = simulate_predictors(recorded, setup.where, setup.progress, predictors)
    effects = simulate_effects(recorded, setup.where, setup.progress)
    starts = simulate_starts(recorded, setup.where, setup.progress)
    notes = tuple(
        f"{one.name}: {text}"
        for one, found in zip(TRACES, loaded, strict=True)
        for text in (
            *found.report.sentences(),
            *(f"acknowledged, as its terms ask: {whom}" for whom in found.facts.acknowledge),
        )
    )
    if is_left_out:
        notes = (*notes, f"{BY_MODEL} is left out: LightGBM is not installed (pip install 'omfs-daemon[predict]')")
    return write_predictors(setup.out, PredictorResults(rows, notes, effects, starts)), setup.clock() - begin


def simulate_predictors(
    recorded: Sequence[tuple[Workload, Machine]],
    where: int | SlurmArray = 1,
    progress: Progress | None = None,
    predictors: Sequence[str] = PREDICTORS_COMPARED,
) -> list[PredictorRow]:
    """Each workload under each policy with each of these predictors."""
    cases = [
        SweepCase(f"{jobs.name} ({predictor})", policy, Scenario(jobs, machine, conventions_of(predictor)))
        for jobs, machine in recorded
        for policy in POLICIES_COMPARED
        for predictor in predictors
    ]
    return run_all(cases, predictor_row, where, progress)


def predictor_row(outcome: Outcome) -> PredictorRow:
    """The figures of one simulation."""
    wait, _, _, bounded = (column[~np.isnan(outcome.finish)] for column in per_job(outcome))
    figures = prediction_figures(outcome, predictor_of(outcome.conventions))
    return PredictorRow(
        trace=outcome.workload.name,
        policy=outcome.policy,
        predictor=figures.name,
        jobs=len(wait),
        accuracy=figures.accuracy,
        median_relative_error=figures.median_relative_error,
        mean_absolute_error=figures.mean_absolute_error,
        under_predicted=figures.under_predicted,
        mean_wait=float(wait.mean()),
        mean_bounded_slowdown=float(bounded.mean()),
        p95_bounded_slowdown=float(np.percentile(bounded, 95)),
    )


def write_predictors(out: Path, found: PredictorResults) -> Path:
    """results.csv, effects.csv, starts.csv, and index.md into a directory that exists; the page's path."""
    from omfs_daemon.simulate.experiments.predictors.predictors_page import write_predictors_page

    write_rows(out / "results.csv", PredictorRow, found.rows)
    write_rows(out / "effects.csv", EffectRow, found.effects)
    write_rows(out / "starts.csv", StartRow, found.starts)
    return write_predictors_page(out, found)
