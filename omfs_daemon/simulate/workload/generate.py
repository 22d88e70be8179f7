"""Workloads from a model: Lublin and Feitelson, "The workload on parallel supercomputers" (JPDC 63, 2003), batch jobs.

The parameters are those that the authors published with their program for batch jobs on a machine of 128 nodes. What
the model does not say (accounts, preempt modes, memory, limits) is drawn independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isclose, isfinite

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, workload

# Sizes: 1 CPU, else 2 to the power of a two-stage uniform number, rounded to a power of two or not.
_SERIAL, _POWER_OF_TWO = 0.2927, 0.6686
_LOW, _MIDDLE_BELOW_HIGH, _LOWER_STAGE = 1.2, 2.0, 0.875

# Run times: exp of one of two gamma distributions (shape, scale); the first with probability slope * size + rest.
_SHORT, _LONG = (6.57, 0.823), (639.1, 0.0156)
_SHORT_SLOPE, _SHORT_REST = -0.003, 0.6986
_LONGEST = 12.0

# Arrivals: exp of a gamma distribution at rush hours, lengthened to the average of a day; and a gamma density over the
# half-hours of the day, which begins at half-hour 10 (05:00), by which the clock of arrivals runs faster and slower.
_GAP_SHAPE, _GAP_SCALE = 6.0415 * 1.0519, 0.8531
_LONGEST_GAP = 13.0
_DAY_SHAPE, _DAY_SCALE = 6.1271, 5.2740
_BUCKETS, _BUCKET, _DAY_BEGINS = 48, 1800.0, 10

# Limits: up to so many times the run time (Mu'alem and Feitelson, IEEE TPDS 12, 2001), and then the next of the few
# values that users really type (Tsafrir et al., JSSPP 2005); hours, and beyond them whole days.
_OVERESTIMATE = 4.0
_TYPED = np.array([1 / 12, 1 / 6, 1 / 4, 1 / 2, 1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48]) * 3600.0
_DAY = 86400.0

# Bytes for each CPU, uniform (Agung et al. 2021, section V-B).
_MEMORY = (0.5e9, 1.25e9)

# Arrivals are whole seconds, so a handful of jobs may miss the load; further off than this they are refused.
_LOAD_WITHIN = 0.1
_LEAST_LOAD, _MOST_LOAD = 0.001, 1000.0


@dataclass(frozen=True, slots=True)
class Model:
    """The parameters of a generated workload.

    jobs      how many
    cpus      of the machine
    load      offered load: CPU seconds of all jobs over what the machine has between the first and the last arrival
    accounts  names, with weights of their numbers of jobs (and so, on the average, of their demands)
    urgent    share of the jobs that are urgent
    modes     how regular jobs can be preempted, with weights
    """

    jobs: int
    cpus: int
    load: float = 0.8
    accounts: Mapping[str, float] = field(default_factory=lambda: {"all": 1.0})
    urgent: float = 0.0
    modes: Mapping[PreemptMode, float] = field(default_factory=lambda: {PreemptMode.SWAP: 1.0})

    def __post_init__(self) -> None:
        for name, value, fine, allowed in (
            ("jobs", self.jobs, 2 <= self.jobs <= bounds.JOBS, f"from 2 to {bounds.JOBS:,}"),
            ("cpus", self.cpus, 4 <= self.cpus <= bounds.CPUS, f"from 4 to {bounds.CPUS:,}"),
            ("load", self.load, _LEAST_LOAD <= self.load <= _MOST_LOAD, f"from {_LEAST_LOAD:g} to {_MOST_LOAD:g}"),
            ("urgent", self.urgent, 0 <= self.urgent <= 1, "a share from 0 to 1"),
            ("accounts", dict(self.accounts), _are_weights(self.accounts), "names with weights above 0"),
            ("modes", dict(self.modes), _are_weights(self.modes), "modes with weights above 0"),
        ):
            if not fine:
                raise ConfigError(f"{name} of a generated workload: {value!r} is not allowed, only {allowed}")


def generated(model: Model, seed: int) -> Workload:
    """A workload of the model, its first job at midnight; the same for the same seed.

    ConfigError if so few jobs, which come at whole seconds, cannot reach the load.
    Each property has random numbers of its own, so that e.g. another urgent share changes neither sizes nor times.
    """
    size, length, arrival, owner, urgency, mode, memory, limit = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(8)
    )
    cpus = sizes(model.jobs, model.cpus, size)
    run = model_run_times(cpus, length)
    urgent = urgency.random(model.jobs) < model.urgent
    drawn_modes = _drawn(list(model.modes.values()), model.jobs, mode)
    jobs = workload(
        f"generated (seed {seed})",
        arrivals(float(cpus @ run) / (model.cpus * model.load), model.jobs, arrival),
        cpus,
        run,
        accounts=tuple(model.accounts),
        limit=typed_limits(run * limit.uniform(1.0, _OVERESTIMATE, model.jobs)),
        account=_drawn(list(model.accounts.values()), model.jobs, owner),
        urgent=urgent,
        mode=np.where(urgent, PreemptMode.NEVER, np.array(list(model.modes))[drawn_modes]),
        memory=np.rint(cpus * memory.uniform(*_MEMORY, model.jobs)),
    )
    if not isclose(offered_load(jobs, model.cpus), model.load, rel_tol=_LOAD_WITHIN):
        raise ConfigError(f"jobs of a generated workload: {model.jobs} are too few for a load of {model.load:g}")
    return jobs


def offered_load(jobs: Workload, cpus: int) -> float:
    """CPU seconds of all jobs over what the machine has between the first and the last arrival."""
    span = float(jobs.submit[-1] - jobs.submit[0])
    return float(jobs.cpus @ jobs.run) / (cpus * span) if span else inf


def sizes(count: int, cpus: int, generator: np.random.Generator) -> Ints:
    """CPUs of each job, 1 to ``cpus``."""
    high = np.log2(cpus)
    middle = max(_LOW, high - _MIDDLE_BELOW_HIGH)
    kind = generator.random(count)
    is_lower = generator.random(count) <= _LOWER_STAGE
    power = generator.uniform(np.where(is_lower, _LOW, middle), np.where(is_lower, middle, high))
    # On a machine whose size is no power of two, rounding up could go beyond it.
    rounded = np.minimum(np.floor(power + 0.5), np.floor(high))
    power = np.where(kind <= _SERIAL + _POWER_OF_TWO, rounded, power)
    return np.where(kind <= _SERIAL, 1, np.floor(2**power + 0.5)).astype(np.int64)


def model_run_times(cpus: Ints, generator: np.random.Generator) -> Floats:
    """Whole seconds of each job, at least 1; wide jobs are more often long."""
    is_short = generator.random(len(cpus)) <= np.clip(_SHORT_SLOPE * cpus + _SHORT_REST, 0, 1)
    shape, scale = np.where(is_short, _SHORT[0], _LONG[0]), np.where(is_short, _SHORT[1], _LONG[1])
    return np.maximum(np.floor(np.exp(_gamma_up_to(_LONGEST, shape, scale, generator))), 1.0)


def arrivals(span: float, count: int, generator: np.random.Generator) -> Floats:
    """Whole seconds from midnight, ascending, the first 0 and the last ``span``.

    Gaps are paid in points, of which each half-hour of the day takes its share, so that few jobs come at night. All
    gaps are scaled to fill the span in points: the load changes, the course of a day does not.
    """
    everywhere = np.ones(count - 1)
    gaps = np.exp(_gamma_up_to(_LONGEST_GAP, _GAP_SHAPE * everywhere, _GAP_SCALE * everywhere, generator))
    edges = np.arange(_BUCKETS + 1) * _BUCKET
    points = np.concatenate(((0.0,), np.cumsum(day_weights())))
    days, rest = divmod(span, edges[-1])
    paid = np.concatenate(((0.0,), np.cumsum(gaps)))
    paid *= (days * points[-1] + np.interp(rest, edges, points)) / paid[-1]
    days, rest = np.divmod(paid, points[-1])
    submit: Floats = np.rint(days * edges[-1] + np.interp(rest, points, edges))
    return submit


def day_weights() -> Floats:
    """How dense arrivals are in each half-hour from midnight on; the mean is 1."""
    inside = (np.arange(64) + 0.5) / 64 - 0.5
    at = (np.arange(_DAY_BEGINS, _DAY_BEGINS + _BUCKETS) + 1)[:, None] + inside
    # The density need not be normalized: the weights are.
    weights = (at ** (_DAY_SHAPE - 1) * np.exp(-at / _DAY_SCALE)).mean(axis=1)
    return np.roll(weights / weights.mean(), _DAY_BEGINS)


def typed_limits(seconds: Floats) -> Floats:
    """The next value that a user would type, at or above each."""
    common = _TYPED[np.minimum(np.searchsorted(_TYPED, seconds), len(_TYPED) - 1)]
    return np.where(seconds > _TYPED[-1], np.ceil(seconds / _DAY) * _DAY, common)


def _gamma_up_to(most: float, shape: Floats, scale: Floats, generator: np.random.Generator) -> Floats:
    """Gamma numbers; those above ``most`` are drawn again."""
    drawn = generator.gamma(shape, scale)
    while (over := drawn > most).any():
        drawn[over] = generator.gamma(shape[over], scale[over])
    return drawn


def _drawn(weights: list[float], count: int, generator: np.random.Generator) -> Ints:
    chances = np.array(weights, dtype=np.float64)
    return generator.choice(len(weights), size=count, p=chances / chances.sum())


def _are_weights(weights: Mapping[str, float] | Mapping[PreemptMode, float]) -> bool:
    return bool(weights) and all(isfinite(weight) and weight > 0 for weight in weights.values())
