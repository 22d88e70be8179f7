"""OMFS (Zvi & Oren 2021) against what it replaces: which simulations there are, and what they are written to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
import polars as pl
from omfs_daemon.simulate.experiments.zvi2021.figures import AccountRow
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing
from omfs_daemon.simulate.experiments.zvi2021.figures import SharingRow
from omfs_daemon.simulate.experiments.zvi2021.figures import sharing
from omfs_daemon.simulate.experiments.zvi2021.workloads import TRACE
from omfs_daemon.simulate.experiments.zvi2021.workloads import Study
from omfs_daemon.simulate.experiments.zvi2021.workloads import from_model
from omfs_daemon.simulate.experiments.zvi2021.workloads import from_model_with_wide
from omfs_daemon.simulate.experiments.zvi2021.workloads import recorded
from omfs_daemon.simulate.workload.trace_files import VARIABLE
from omfs_daemon.simulate.workload.trace_files import trace
from omfs_daemon.simulate.results.result_files import prepare
from omfs_daemon.simulate.results.result_files import save
from omfs_daemon.simulate.run_cases import Case
from omfs_daemon.simulate.run_cases import Progress
from omfs_daemon.simulate.run_cases import Slurm
from omfs_daemon.simulate.run_cases import compile_for
from omfs_daemon.simulate.run_cases import run_all
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import Variant
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import FCFS
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import EASY
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import OMFS
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import BASELINES
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import COMPARED
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import SWEPT
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import LATE
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import OF_TRACE
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import Found
from omfs_daemon.simulate.experiments.zvi2021.zvi2021_cases import setting

SEEDS = 8


def run(
    directory: Path | None,
    environment: Mapping[str, str],
    out: Path,
    where: int | Slurm,
    progress: Progress | None,
    clock: Callable[[], float],
) -> tuple[Path, float]:
    """The whole experiment: its page, and the seconds that it took without compiling; ConfigError for a missing trace.

    Without ``directory`` and without OMFS_TRACES in ``environment`` only generated workloads are replayed. ``clock``
    gives seconds.
    """
    prepare(out)
    path = trace(TRACE, directory, environment) if directory or environment.get(VARIABLE) else None
    compile_for(variant.policy for variant in COMPARED)
    begin = clock()
    seeds = range(SEEDS)
    result = found(
        [from_model(seed) for seed in seeds],
        [from_model_with_wide(seed) for seed in seeds],
        () if path is None else recorded(path),
        where,
        progress,
    )
    return write(out, result), clock() - begin


def found(
    generated: Sequence[Study],
    wide: Sequence[Study] = (),
    recorded: Sequence[Study] = (),
    where: int | Slurm = 1,
    progress: Progress | None = None,
) -> Found:
    """All simulations of these workloads."""
    wanted = [(study, variant) for study in generated for variant in dict.fromkeys((*BASELINES, *SWEPT, *LATE))]
    wanted += [(study, variant) for study in wide for variant in (FCFS, EASY, OMFS)]
    wanted += [(study, variant) for study in recorded for variant in dict.fromkeys((*BASELINES, *OF_TRACE))]
    trees = {study.name: study.tree for study, _ in wanted}
    results = run_all([_case(*one) for one in wanted], partial(sharing, trees=trees), where, progress)
    named = [_named(result, variant) for (_, variant), result in zip(wanted, results, strict=True)]
    keys = [(study.name, variant) for study, variant in wanted]
    return Found(generated, wide, recorded, dict(zip(keys, named, strict=True)))


def write(out: Path, result: Found) -> Path:
    """results.csv, accounts.csv, plots and index.md into a directory that exists; the page's path."""
    # Both are for this only, and load slowly.
    from omfs_daemon.simulate.experiments.zvi2021 import zvi2021_page
    from omfs_daemon.simulate.experiments.zvi2021 import zvi2021_plots

    every = list(result.results.values())
    _write_rows(out / "results.csv", SharingRow, [one.row for one in every])
    _write_rows(out / "accounts.csv", AccountRow, [row for one in every for row in one.accounts])
    return zvi2021_page.write(out, result, zvi2021_plots.draw(out, result))


def _case(study: Study, variant: Variant) -> Case:
    return Case(f"{study.name} ({variant.name})", variant.policy, setting(study, variant))


def _named(result: Sharing, variant: Variant) -> Sharing:
    return replace(
        result,
        row=replace(result.row, policy=variant.name),
        accounts=tuple(replace(row, policy=variant.name) for row in result.accounts),
    )


def _write_rows(path: Path, kind: type[SharingRow | AccountRow], rows: Sequence[Any]) -> None:
    """As CSV, empty where there is no figure; ConfigError if it cannot be written."""
    table = pl.DataFrame([asdict(row) for row in rows], schema=[field.name for field in fields(kind)]).fill_nan(None)
    save(path, lambda file: table.write_csv(file))
