"""The experiments of Agung et al. (2021), section V: which simulations there are, and what they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.accounting.trace_files import trace
from omfs_daemon.simulate.engine.conventions import Conventions, replayed_run_times
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link, Spread
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.agung2021.agung2021_cases import (
    ALL,
    BY_SLOWDOWN,
    COMPARED,
    FACTORS,
    SEED,
    SMALL_SWAP,
    SWAP_IN,
    SWAP_OUT,
    AgungResults,
    AgungStudy,
    Key,
    ReplayKind,
    Sensitivity,
)
from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.results.measure import per_job
from omfs_daemon.simulate.results.result_files import prepare
from omfs_daemon.simulate.results.result_rows import Figures, ResultRow, figures, write_rows
from omfs_daemon.simulate.run_cases import Progress, SlurmArray, SweepCase, compile_for, run_all
from omfs_daemon.simulate.workload.load_trace import load_trace
from omfs_daemon.simulate.workload.read_options import ReadOptions
from omfs_daemon.simulate.workload.urgent_jobs import published, with_urgent
from omfs_daemon.simulate.workload.workload import Workload

# How many of the widest jobs are left out, one at a time.
_LEFT_OUT = 40


class _Recorded(NamedTuple):
    name: str
    trace: str
    cpus: int
    urgent: str | None


# DWD has no list: its queue 1 is urgent, as in its header.
_RECORDED = (
    _Recorded("SDSC-DS", "SDSC-DS-2004-2.1-cln.swf.gz", 1664, "sdsc-ds"),
    _Recorded("LANL-CM5", "LANL-CM5-1994-4.1-cln.swf.gz", 1024, "lanl-cm5"),
    _Recorded("SX-ACE", "sx-ace-2019.swf.gz", 1024, "sx-ace"),
    _Recorded("DWD", "dwd-2020-09-17.swf.gz", 1024, None),
)


def run_agung2021(setup: ExperimentSetup) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds without compiling; ConfigError for a missing trace."""
    prepare(setup.out)
    begin = setup.clock()
    workloads = studies(setup.traces, setup.environment)
    loaded = setup.clock()
    compile_for(ALL)
    begin += setup.clock() - loaded
    results = simulate_agung2021(workloads, setup.where, setup.progress)
    page = write_agung2021(setup.out, results, begin, setup.clock)
    return page, setup.clock() - begin


def studies(directory: Path | None, environment: Mapping[str, str]) -> list[AgungStudy]:
    """The four workloads of the paper; ConfigError, before any is read, for a missing trace."""
    paths = [trace(recorded.trace, directory, environment) for recorded in _RECORDED]
    return [_study(recorded, path) for recorded, path in zip(_RECORDED, paths, strict=True)]


def write_agung2021(out: Path, result: AgungResults, begin: float, clock: Callable[[], float]) -> Path:
    """results.csv, their-conventions.csv, plots and index.md into a directory that exists; the page's path.

    ``begin``: when the experiment began, by ``clock``.
    """
    # Both are for this only, and load slowly.
    from omfs_daemon.simulate.experiments.agung2021 import agung2021_page, agung2021_plots

    rows = {
        kind: [_named(key, result.results[key]) for key in result.results if key.kind is kind] for kind in ReplayKind
    }
    write_rows(out / "results.csv", ResultRow, [figure.row for figure in rows[ReplayKind.TEXT]])
    write_rows(out / "their-conventions.csv", ResultRow, [figure.row for figure in rows[ReplayKind.THEIRS]])
    plots = agung2021_plots.draw_agung2021(out, result)
    return agung2021_page.write_agung2021_page(out, result, plots, clock() - begin)


def simulate_agung2021(
    studies: Sequence[AgungStudy], where: int | SlurmArray = 1, progress: Progress | None = None
) -> AgungResults:
    """All simulations of these workloads."""
    cases = {key: case for study in studies for key, case in _cases(study)}
    results = run_all(list(cases.values()), figures, where, progress)
    sensitivity = {
        (study.name, policy, column): found
        for study in studies
        for policy in ("fcfs", "ujf")
        for column, found in _sensitivity(study, policy)
    }
    return AgungResults(studies, dict(zip(cases, results, strict=True)), sensitivity)


def on_their_clock(workload: Workload) -> Workload:
    """Every run takes the whole seconds after it: ``floor(max(run, 1 s)) + 1 s``, what a job was cut to included.

    That is how the authors' simulator (GridSim underneath) sets the end of a run. There a run ends at its true end if
    something else happens on the machine in that very second; that is left out here.
    """
    run = np.floor(np.maximum(replayed_run_times(workload, Conventions()), 1.0)) + 1.0
    return replace(workload, run=run, limit=np.full(len(workload), np.inf))


def one_by_one(workload: Workload, factor: float, seed: int) -> tuple[Workload, CostModel]:
    """Swap-outs of one decision run one after the other: the same drawn seconds, but over one shared link.

    A job "moves" as many units as its swap-out takes seconds, and all share a link of one unit a second.
    """
    seconds = SWAP_OUT.low + (SWAP_OUT.high - SWAP_OUT.low) * np.random.default_rng(seed).random(len(workload))
    return replace(workload, swap=seconds * factor), CostModel(
        swap_out=Link(together=1.0), swap_in=_times(SWAP_IN, factor)
    )


def _study(recorded: _Recorded, path: Path) -> AgungStudy:
    loaded = load_trace(path, ReadOptions(accounts="none"))
    jobs = loaded.workload
    if recorded.urgent is not None:
        jobs = with_urgent(jobs, published(recorded.urgent))
    thanks = tuple(f"acknowledged, as its terms ask: {whom}" for whom in loaded.facts.acknowledge)
    return AgungStudy(replace(jobs, name=recorded.name), Machine(recorded.cpus), (*loaded.report.sentences(), *thanks))


def _cases(study: AgungStudy) -> list[tuple[Key, SweepCase]]:
    """Every simulation of one workload."""
    plain, theirs = study.workload, on_their_clock(study.workload)
    urgent = plain.take(plain.urgent)
    drawn = CostModel(swap_out=SWAP_OUT, swap_in=SWAP_IN)
    wanted = [(Key(ReplayKind.TEXT, study.name, policy), plain, drawn) for policy in ALL]
    wanted.append(
        (Key(ReplayKind.SMALL, study.name, "ujfb"), plain, CostModel(swap_out=SMALL_SWAP, swap_in=SMALL_SWAP))
    )
    wanted += [(Key(ReplayKind.THEIRS, study.name, policy), *one_by_one(theirs, 1.0, SEED)) for policy in COMPARED]
    for factor in FACTORS:
        slower = CostModel(swap_out=_times(SWAP_OUT, factor), swap_in=_times(SWAP_IN, factor))
        wanted.append((Key(ReplayKind.TEXT, study.name, "ujfb", factor), plain, slower))
        wanted.append((Key(ReplayKind.THEIRS, study.name, "ujfb", factor), *one_by_one(theirs, factor, SEED)))
    wanted += [(Key(ReplayKind.ALONE, study.name, policy), urgent, drawn) for policy in ("ujf", "ujfb", BY_SLOWDOWN)]
    return [
        (
            key,
            SweepCase(
                f"{_title(key)} ({key.kind.value})", key.policy, Scenario(jobs, study.machine, costs=costs, seed=SEED)
            ),
        )
        for key, jobs, costs in wanted
    ]


def _sensitivity(study: AgungStudy, policy: str) -> Iterator[tuple[str, Sensitivity]]:
    """How much one job matters to urgent ones: where a queue never empties, it moves all that come after it."""
    jobs = on_their_clock(study.workload)
    regular = np.flatnonzero(~jobs.urgent)
    widest = regular[np.lexsort((-jobs.run[regular], -jobs.cpus[regular]))][:_LEFT_OUT]
    slowdowns = [
        _urgent_slowdowns(policy, Scenario(jobs.take(np.arange(len(jobs)) != job), study.machine)) for job in widest
    ]
    for column, of_urgent in (("U_L", np.max), ("urgent_mean_slowdown", np.mean)):
        values = [float(of_urgent(slowdown)) for slowdown in slowdowns]
        yield column, Sensitivity(len(values), min(values), max(values))


def _urgent_slowdowns(policy: str, scenario: Scenario) -> Floats:
    slowdowns: Floats = per_job(policy_named(policy).simulate(scenario))[2][scenario.workload.urgent]
    return slowdowns


def _times(spread: Spread, factor: float) -> Spread:
    return Spread(spread.low * factor, spread.high * factor)


def _title(key: Key) -> str:
    return key.workload if key.factor == 1.0 else f"{key.workload} {key.factor:g}x swap"


def _named(key: Key, figure: Figures) -> Figures:
    return replace(figure, row=replace(figure.row, workload=_title(key)))
