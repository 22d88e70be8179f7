"""Which predictors are compared, under which policies, and what is measured of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.policies.run_predictor import LEARNING

POLICIES_COMPARED = ("easy", "easy-sjbf")
PREDICTORS_COMPARED = ("user", "exact", *LEARNING)


@dataclass(frozen=True, slots=True)
class PredictorRow:
    """The columns of results.csv. Figures are over the jobs that were done; waits and errors are seconds."""

    trace: str
    policy: str
    predictor: str
    jobs: int
    accuracy: float
    median_relative_error: float
    mean_absolute_error: float
    under_predicted: float
    mean_wait: float
    mean_bounded_slowdown: float
    p95_bounded_slowdown: float


@dataclass(frozen=True, slots=True)
class EffectRow:
    """The columns of effects.csv. Bounded slowdowns of the jobs that were done: of the urgent or real-time ones
    (``U_L``: the greatest), and of the others."""

    trace: str
    policy: str
    draw: int
    predictor: str
    used_for: str
    jobs: int
    first_mean: float
    U_L: float
    other_mean: float
    other_p95: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class StartRow:
    """The columns of starts.csv. ``jobs``: of how many jobs, each at one moment; errors in seconds, of p50;
    ``p90_held``: share that started no later than p90; ``within_10_min``: share whose error is no greater."""

    trace: str
    policy: str
    basis: str
    jobs: int
    p90_held: float
    median_error: float
    mean_error: float
    within_10_min: float


class PredictorResults(NamedTuple):
    """``notes``: what was read of each trace; ``effects``: where jobs are preempted; ``starts``: how good estimates of
    starts are."""

    rows: list[PredictorRow]
    notes: tuple[str, ...]
    effects: list[EffectRow]
    starts: list[StartRow]


def predictor_of(conventions: Conventions) -> str:
    """The name of the estimates in a simulation."""
    return conventions.learning or ("exact" if conventions.estimates is None else "user")


def conventions_of(predictor: str) -> Conventions:
    """Those of a simulation with these estimates."""
    return Conventions(
        estimates=UserLimits() if predictor == "user" else None,
        learning=predictor if predictor in LEARNING else None,
    )
