"""OMFS (Zvi & Oren 2021) against what it replaces: which simulations there are, and what they are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.policy.rules import Rules
from omfs_daemon.simulate.asked import Asked, costs_for
from omfs_daemon.simulate.conventions import Conventions, UserLimits
from omfs_daemon.simulate.costs import CostModel, Link
from omfs_daemon.simulate.experiments.zvi2021_figures import AccountRow, Sharing, SharingRow, sharing
from omfs_daemon.simulate.experiments.zvi2021_workloads import (
    TRACE,
    Study,
    from_model,
    from_model_with_wide,
    recorded,
)
from omfs_daemon.simulate.locate import VARIABLE, trace
from omfs_daemon.simulate.record import prepare, save
from omfs_daemon.simulate.setting import Setting
from omfs_daemon.simulate.sweep import Case, Progress, Slurm, compile_for, run_all
from omfs_daemon.simulate.workload import Way

SEEDS = 8
QUANTA = (0.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
# The paper's example, section II.
QUANTUM = 1800.0
LATENCIES = (10.0, 60.0)

# Bytes per second of all checkpoints of one decision together: a small site's file system.
SLOW = Link(each=4e9 / 128, together=1e9)

# The paper has no limit but the quantum.
_NO_LIMIT = 1_000_000


class Method(NamedTuple):
    """A way of stopping jobs, the same for all of them; ``link``: of checkpoints, if not the usual one."""

    title: str
    way: Way
    link: Link | None = None


METHODS = {
    "checkpoint": Method("checkpoint", Way.CHECKPOINT),
    "slow": Method("checkpoint, slow file system", Way.CHECKPOINT, SLOW),
    "swap": Method("swap", Way.SWAP),
    "kill": Method("kill", Way.KILL),
}
CHECKPOINT = "checkpoint"


class Variant(NamedTuple):
    """A policy, and for OMFS what is swept: method of ``METHODS``, quantum and decision latency in seconds."""

    policy: str
    method: str = CHECKPOINT
    quantum: float = QUANTUM
    latency: float = 0.0

    @property
    def name(self) -> str:
        """As in results.csv: what is not usual is named."""
        method = "" if self.method == CHECKPOINT else f"-{self.method}"
        quantum = "" if self.quantum == QUANTUM else f"-q{self.quantum:g}"
        latency = f"-latency{self.latency:g}" if self.latency else ""
        return f"{self.policy}{method}{quantum}{latency}"


PARTITION, CAPPING, FCFS, EASY, OMFS = (Variant(name) for name in ("partition", "capping", "fcfs", "easy", "omfs"))
BASELINES = (PARTITION, CAPPING, FCFS, EASY)
COMPARED = (*BASELINES, OMFS)
SWEPT = tuple(Variant("omfs", method, quantum) for method in METHODS for quantum in QUANTA)
LATE = tuple(Variant("omfs", latency=latency) for latency in LATENCIES)
# Of a recorded trace, which is long: the quantum by the usual method, and the other methods at the usual quantum.
OF_TRACE = (*(Variant("omfs", quantum=q) for q in QUANTA), *(Variant("omfs", method) for method in METHODS))

Results = Mapping[tuple[str, Variant], Sharing]


@dataclass(frozen=True, slots=True)
class Found:
    """All that a page tells.

    generated  workloads of the model without the jobs that partition refuses; ``wide``: with them
    recorded   those of a trace; none, if there is no trace
    """

    generated: Sequence[Study]
    wide: Sequence[Study]
    recorded: Sequence[Study]
    results: Results

    def of(self, studies: Iterable[Study], variant: Variant) -> list[Sharing]:
        """What this variant came to on each of the workloads."""
        return [self.results[study.name, variant] for study in studies]


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


def setting(study: Study, variant: Variant) -> Setting:
    """One simulation. All jobs can be stopped by one and the same method; run times are believed to be the limits."""
    method = METHODS[variant.method]
    jobs = study.workload
    return Setting(
        replace(jobs, way=np.full(len(jobs), int(method.way), dtype=np.int64)),
        study.machine,
        CONVENTIONS,
        _costs(method, variant.latency),
        Rules(tree=study.tree, quantum=variant.quantum, max_stops_per_hour=_NO_LIMIT, max_stops_per_cycle=_NO_LIMIT),
    )


CONVENTIONS = Conventions(UserLimits())


def write(out: Path, result: Found) -> Path:
    """results.csv, accounts.csv, plots and index.md into a directory that exists; the page's path."""
    # Both are for this only, and load slowly.
    from omfs_daemon.simulate.experiments import zvi2021_page, zvi2021_plots

    every = list(result.results.values())
    _write_rows(out / "results.csv", SharingRow, [one.row for one in every])
    _write_rows(out / "accounts.csv", AccountRow, [row for one in every for row in one.accounts])
    return zvi2021_page.write(out, result, zvi2021_plots.draw(out, result))


def _case(study: Study, variant: Variant) -> Case:
    return Case(f"{study.name} ({variant.name})", variant.policy, setting(study, variant))


def _costs(method: Method, latency: float) -> CostModel:
    usual = costs_for(Asked(latency=latency))
    return usual if method.link is None else replace(usual, write=method.link, read=method.link)


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
