"""The figures of one simulated workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.scenario import owners
from omfs_daemon.simulate.results.fairness import Fairness, fairness
from omfs_daemon.simulate.results.realtime_figures import RealtimeFigures, realtime_figures
from omfs_daemon.simulate.results.timeline import held_units, unit_cpus

# A run time below it counts as so many seconds in the slowdown, which has no other bound (Agung et al. 2021).
_SHORTEST = 1.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Over jobs, not weighted; nan without jobs. ``p95`` interpolates between jobs."""

    mean: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Of the jobs of one group that were done; times in seconds, waits up to the first start."""

    jobs: int
    wait: Distribution
    response: Distribution
    slowdown: Distribution
    bounded_slowdown: Distribution


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """Of one leaf of the account tree.

    entitled   CPUs that it owns, of whole nodes where jobs get whole nodes
    cpu_hours  what its jobs held, preemptions and lost work included
    """

    name: str
    entitled: float
    cpu_hours: float
    preemptions: int
    figures: JobFigures
    fairness: Fairness


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures of a simulation.

    jobs, rejected        in the workload; of those, refused as wider than what they may ever use
    cut                   ended at their limit
    u_l                   the greatest slowdown of an urgent job (Agung et al. 2021, Equation 4)
    utilisation           CPU-seconds held / (CPUs * makespan)
    productive_utilisation  the same of work that counted: without preemptions, resumes and lost work
    preemptions           how many; preempted_jobs: how many jobs were preempted at least once
    lost_cpu_hours        work that was thrown away
    makespan              seconds from the first submission, the same for all policies, to the last finish
    realtime              of real-time jobs, and of the others beside them; None: there are none
    """

    jobs: int
    rejected: int
    cut: int
    all: JobFigures
    regular: JobFigures
    urgent: JobFigures
    u_l: float
    utilisation: float
    productive_utilisation: float
    preemptions: int
    preempted_jobs: int
    lost_cpu_hours: float
    makespan: float
    accounts: tuple[AccountFigures, ...]
    realtime: RealtimeFigures | None = None

    def as_json(self) -> dict[str, Any]:
        """For a strict JSON file: what there is no figure for is null."""
        figures: dict[str, Any] = strict(asdict(self))
        figures["U_L"] = figures.pop("u_l")
        return figures | (figures.pop("realtime") or {})


def measure(outcome: Outcome, tree: AccountTree) -> Measures:
    """All figures of an outcome; ``tree`` says who owns what."""
    workload = outcome.workload
    owner = owners(workload, tree)
    done = ~np.isnan(outcome.finish)
    waits = per_job(outcome)
    held_seconds = cpu_seconds(outcome)
    by_job = held_seconds.sum(axis=1)
    makespan = float(outcome.finish[done].max() - workload.submit[0]) if done.any() else nan
    offered = outcome.machine.cpus * makespan if makespan > 0 else nan
    urgent = figures_of(waits[:, done & workload.urgent])
    return Measures(
        jobs=len(workload),
        rejected=int(outcome.rejected.sum()),
        cut=int((outcome.is_cut & done).sum()),
        all=figures_of(waits[:, done]),
        regular=figures_of(waits[:, done & ~workload.urgent]),
        urgent=urgent,
        u_l=urgent.slowdown.max,
        utilisation=float(_total(held_seconds) / offered),
        productive_utilisation=float(held_seconds[:, Use.WORK].sum() / offered),
        preemptions=int(outcome.preemptions.sum()),
        preempted_jobs=int((outcome.preemptions > 0).sum()),
        lost_cpu_hours=float(held_seconds[:, Use.LOST].sum() / HOUR),
        makespan=makespan,
        accounts=tuple(_accounts(outcome, tree, owner, waits, by_job)),
        realtime=realtime_figures(outcome, waits) if workload.realtime.any() else None,
    )


def _accounts(
    outcome: Outcome, tree: AccountTree, owner: Ints, waits: Floats, seconds: Floats
) -> Iterator[AccountFigures]:
    """The leaves that own something or have jobs, in the order of the tree."""
    count = len(tree.entities)
    machine = outcome.machine
    entitled = tree.entitled(machine.nodes or machine.cpus)
    held = np.bincount(owner, weights=seconds, minlength=count) / HOUR
    preemptions = np.bincount(owner, weights=outcome.preemptions, minlength=count)
    jobs = np.bincount(owner, minlength=count)
    fair = fairness(outcome, owner, np.array(entitled, dtype=np.int64))
    done = np.flatnonzero(~np.isnan(outcome.finish))
    done = done[np.argsort(owner[done], kind="stable")]
    bounds = np.searchsorted(owner[done], np.arange(count + 1))
    for entity in tree.entities:
        index = entity.index
        if entity.is_leaf and (jobs[index] or entity.entitlement):
            yield AccountFigures(
                name=entity.name,
                entitled=entitled[index] * unit_cpus(machine),
                cpu_hours=float(held[index]),
                preemptions=int(preemptions[index]),
                figures=figures_of(waits[:, done[bounds[index] : bounds[index + 1]]]),
                fairness=fair[index],
            )


def per_job(outcome: Outcome) -> Floats:
    """Wait, response, slowdown and bounded slowdown: four rows, one column per job; nan: it was never done."""
    submit, run = outcome.workload.submit, outcome.run
    response = outcome.finish - submit
    bounded = np.maximum(response / np.maximum(run, outcome.conventions.bound), 1.0)
    return np.stack((outcome.start - submit, response, response / np.maximum(run, _SHORTEST), bounded))


def figures_of(waits: Floats) -> JobFigures:
    """From the columns of :func:`per_job` of some jobs that were done."""
    jobs = waits.shape[1]
    if not jobs:
        nothing = Distribution(nan, nan, nan, nan)
        return JobFigures(0, nothing, nothing, nothing, nothing)
    median, p95 = np.quantile(waits, (0.5, 0.95), axis=1)
    rows = zip(waits.mean(axis=1), median, p95, waits.max(axis=1), strict=True)
    return JobFigures(jobs, *(Distribution(*(float(value) for value in row)) for row in rows))


def cpu_seconds(outcome: Outcome) -> Floats:
    """CPU-seconds that each job held for each ``Use``: one row per job, one column per use."""
    return _by_use(outcome, held_units(outcome) * unit_cpus(outcome.machine))


def seconds_by_use(outcome: Outcome) -> Floats:
    """Seconds that each job held its CPUs for each ``Use``, likewise."""
    return _by_use(outcome, np.ones(len(outcome.workload)))


def _total(by_use: Floats) -> float:
    """Checkpoints are added last: without any, a sum is what it was before there was that use, to the last digit."""
    others = np.ascontiguousarray(by_use[:, : Use.CHECKPOINT])
    return float(others.sum() + by_use[:, Use.CHECKPOINT].sum())


def _by_use(outcome: Outcome, weights: Floats) -> Floats:
    segments, uses = outcome.segments, len(Use)
    amount = (segments.end - segments.begin) * weights[segments.job]
    flat = np.bincount(segments.job * uses + segments.use, weights=amount, minlength=len(outcome.workload) * uses)
    return np.asarray(flat, dtype=np.float64).reshape(len(outcome.workload), uses)


def strict(value: Any) -> Any:
    """The same with null for every float that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
