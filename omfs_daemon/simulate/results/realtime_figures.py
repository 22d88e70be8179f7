"""The figures of real-time jobs, of batch jobs beside them, and of each category (Nickolay et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.realtime_setting import categories

BOUND = RealtimeTerms().bound
"""The slowdown that users of real-time jobs are promised."""

PARTS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class Spreading:
    """Over jobs, not weighted; parts interpolate between jobs; nan without jobs."""

    mean: float
    median: float
    p5: float
    p25: float
    p75: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """Of jobs that were done; turnaround in seconds."""

    jobs: int
    bounded_slowdown: Spreading
    slowdown: Spreading
    turnaround: Spreading


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    realtime: ClassFigures
    batch: ClassFigures


@dataclass(frozen=True, slots=True)
class RealtimeFigures:
    """``bound_kept``: share of the real-time jobs whose slowdown is at most ``bound``; ``categories``: by name."""

    bound: float
    bound_kept: float
    realtime: ClassFigures
    batch: ClassFigures
    categories: dict[str, CategoryFigures]


def realtime_figures(outcome: Outcome, waits: Floats, chosen: Bools | None = None) -> RealtimeFigures:
    """``waits``: as of ``per_job``; ``chosen``: which jobs count, those that were done if None."""
    workload = outcome.workload
    counts = ~np.isnan(outcome.finish) if chosen is None else chosen & ~np.isnan(outcome.finish)
    realtime, category = workload.realtime, outcome_categories(outcome)

    def both(mask: Bools) -> CategoryFigures:
        return CategoryFigures(_figures(waits[:, mask & realtime]), _figures(waits[:, mask & ~realtime]))

    every, slowdown = both(counts), waits[2, counts & realtime]
    return RealtimeFigures(
        bound=BOUND,
        bound_kept=float((slowdown <= BOUND).mean()) if len(slowdown) else nan,
        realtime=every.realtime,
        batch=every.batch,
        categories={name: both(counts & (category == number)) for number, name in enumerate(CATEGORIES)},
    )


def outcome_categories(outcome: Outcome) -> Ints:
    """The number of each job's category."""
    return categories(outcome.workload, outcome.conventions, outcome.machine.cpus, outcome.sizes)


def spreading(values: Floats) -> Spreading:
    """Of these values."""
    if not len(values):
        return Spreading(*(nan,) * 7)
    p5, p25, median, p75, p95 = (float(value) for value in np.quantile(values, PARTS))
    return Spreading(float(values.mean()), median, p5, p25, p75, p95, float(values.max()))


def _figures(waits: Floats) -> ClassFigures:
    _, response, slowdown, bounded = waits
    return ClassFigures(len(response), spreading(bounded), spreading(slowdown), spreading(response))
