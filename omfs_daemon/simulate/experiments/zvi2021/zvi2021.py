"""OMFS (Zvi & Oren 2021) against what it replaces: which simulations there are, and what they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from omfs_daemon.accounting.trace_files import VARIABLE, trace
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.experiments.zvi2021.figures import AccountResultRow, Sharing, SharingRow, sharing
from omfs_daemon.simulate.experiments.zvi2021.workloads import (
    TRACE,
    ZviStudy,
    from_model,
    from_model_with_wide,
    recorded,
)
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import (
    BASELINES,
    COMPARED,
    EASY,
    FCFS,
    LATE,
    OF_TRACE,
    OMFS,
    SWEPT,
    Variant,
    ZviResults,
    zvi2021_scenario,
)
from omfs_daemon.simulate.results.result_files import prepare
from omfs_daemon.simulate.results.result_rows import write_rows
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, SweepCase, compile_for, run_all

SEEDS = 8


def run_zvi2021(setup: ExperimentSetup) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds without compiling; ConfigError for a missing trace.

    Without a directory of traces only generated workloads are replayed.
    """
    prepare(setup.out)
    has_traces = setup.traces or setup.environment.get(VARIABLE)
    path = trace(TRACE, setup.traces, setup.environment) if has_traces else None
    compile_for(variant.policy for variant in COMPARED)
    begin = setup.clock()
    seeds = range(SEEDS)
    result = simulate_zvi2021(
        [from_model(seed) for seed in seeds],
        [from_model_with_wide(seed) for seed in seeds],
        () if path is None else recorded(path),
        setup.where,
        setup.progress,
    )
    return write_zvi2021(setup.out, result), setup.clock() - begin


def simulate_zvi2021(
    generated: Sequence[ZviStudy],
    wide: Sequence[ZviStudy] = (),
    recorded: Sequence[ZviStudy] = (),
    where: int | SlurmArray = 1,
    progress: Progress | None = None,
) -> ZviResults:
    """All simulations of these workloads."""
    wanted = [(study, variant) for study in generated for variant in dict.fromkeys((*BASELINES, *SWEPT, *LATE))]
    wanted += [(study, variant) for study in wide for variant in (FCFS, EASY, OMFS)]
    wanted += [(study, variant) for study in recorded for variant in dict.fromkeys((*BASELINES, *OF_TRACE))]
    trees = {study.name: study.tree for study, _ in wanted}
    results = run_all([_case(*one) for one in wanted], partial(sharing, trees=trees), where, progress)
    named = [_named(result, variant) for (_, variant), result in zip(wanted, results, strict=True)]
    keys = [(study.name, variant) for study, variant in wanted]
    return ZviResults(generated, wide, recorded, dict(zip(keys, named, strict=True)))


def write_zvi2021(out: Path, result: ZviResults) -> Path:
    """results.csv, accounts.csv, plots and index.md into a directory that exists; the page's path."""
    # Both are for this only, and load slowly.
    from omfs_daemon.simulate.experiments.zvi2021 import zvi2021_page, zvi2021_plots

    every = list(result.results.values())
    write_rows(out / "results.csv", SharingRow, [one.row for one in every])
    write_rows(out / "accounts.csv", AccountResultRow, [row for one in every for row in one.accounts])
    return zvi2021_page.write_zvi2021_page(out, result, zvi2021_plots.draw_zvi2021(out, result))


def _case(study: ZviStudy, variant: Variant) -> SweepCase:
    return SweepCase(f"{study.name} ({variant.name})", variant.policy, zvi2021_scenario(study, variant))


def _named(result: Sharing, variant: Variant) -> Sharing:
    return replace(
        result,
        row=replace(result.row, policy=variant.name),
        accounts=tuple(replace(row, policy=variant.name) for row in result.accounts),
    )
