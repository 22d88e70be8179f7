"""The best schedule of a small log in hindsight: least mean slowdown of batch jobs, that of real-time jobs bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from ortools.sat.python import cp_model

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.optimum.instance import Schedule, SmallLog, mean_slowdown
from omfs_daemon.simulate.optimum.model import OptimumModel

MOST_JOBS = 12
MOST_LIMIT = 2.0
"""The largest limit that is tried when the one asked for cannot be held (section 5.1)."""
_WORKERS = 8
"""Strategies of the solver, which it runs in turn on fewer cores."""


@dataclass(frozen=True, slots=True)
class OptimumOptions:
    """limit: of the real-time jobs' mean slowdown; stops: of each batch job, 0 or 1; seconds: for one log; tick: see
    :class:`OptimumModel`; seed: of the solver."""

    limit: float = 1.2
    stops: int = 1
    seconds: float = 60.0
    tick: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        for good, text in (
            (1 <= self.limit <= MOST_LIMIT, f"--limit {self.limit:g} is not allowed, only 1 to {MOST_LIMIT:g}"),
            (self.stops in (0, 1), f"--stops {self.stops} is not allowed, only 0 or 1"),
            (self.seconds > 0, f"--seconds {self.seconds:g} is not allowed, only more than 0"),
            (1 <= self.tick <= 3600, f"--tick {self.tick} is not allowed, only 1 to 3600 seconds"),
        ):
            if not good:
                raise ConfigError(text)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best schedule found for a log.

    status    "optimal": proven; "feasible": the best found in time; "infeasible": proven that no limit up to
              ``MOST_LIMIT`` can be held; "unknown": nothing found in time
    bound     no schedule in ticks has a lower ``batch_sd``; None without batch jobs or when infeasible
    limit     that was held: the one asked for, or the least hundredth that can be; None: no real-time jobs
    seconds   that solving took
    """

    log: SmallLog
    status: str
    schedule: Schedule
    bound: float | None
    limit: float | None
    seconds: float

    @property
    def batch_sd(self) -> float | None:
        """Mean slowdown of the batch jobs."""
        return mean_slowdown(self.schedule, realtime=False)

    @property
    def realtime_sd(self) -> float | None:
        """Mean slowdown of the real-time jobs."""
        return mean_slowdown(self.schedule, realtime=True)

    @property
    def gap(self) -> float | None:
        """How much lower the optimum may be, as a part of ``batch_sd``."""
        found = self.batch_sd
        if found is None or self.bound is None:
            return None
        return 0.0 if self.status == "optimal" else max(1 - self.bound / found, 0.0)

    @property
    def stopped(self) -> int:
        """How many jobs are stopped."""
        return sum(part.number == 2 for part in self.schedule)


def find_optimum(log: SmallLog, options: OptimumOptions, clock: Callable[[], float]) -> Optimum:
    """The best schedule; ``clock``: seconds, monotonic. Ends within about ``options.seconds``."""
    begin = clock()
    limit, status = None, "unknown"
    if log.realtime:
        limit, status = _held_limit(log, options)
    if log.realtime and limit is None:
        return Optimum(log, status, (), None, None, clock() - begin)
    model = OptimumModel(log, options.tick, options.stops == 1)
    if limit is not None:
        model.bound_realtime(limit)
    unit = model.minimize(log.batch or log.realtime)
    solver = _solver(options, options.seconds - (clock() - begin))
    status = _status(solver.solve(model.model))
    schedule = model.schedule(solver) if status in ("optimal", "feasible") else ()
    bound = solver.best_objective_bound * unit if log.batch and status != "infeasible" else None
    return Optimum(log, status, schedule, bound, limit, clock() - begin)


def _held_limit(log: SmallLog, options: OptimumOptions) -> tuple[float | None, str]:
    """The limit asked for, or the least hundredth above it that can be held; else none and why.

    Batch jobs can always wait until all others have ended, so real-time jobs alone decide: what a bisection over whole
    schedules would come to is found at once.
    """
    alone = replace(log, jobs=log.realtime)
    model = OptimumModel(alone, options.tick, stops=False)
    unit = model.minimize(log.realtime)
    solver = _solver(options, options.seconds)
    if (status := _status(solver.solve(model.model))) not in ("optimal", "feasible"):
        return None, status
    least = solver.objective_value * unit
    if least <= options.limit + 1e-9:
        return options.limit, status
    raised = max(ceil(least * 100 - 1e-6) / 100, 1.1)
    return (raised, status) if raised <= MOST_LIMIT else (None, "infeasible")


def _solver(options: OptimumOptions, seconds: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.1)
    solver.parameters.num_workers = _WORKERS
    solver.parameters.random_seed = options.seed
    solver.parameters.symmetry_level = 1
    return solver


def _status(found: object) -> str:
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible", cp_model.INFEASIBLE: "infeasible"}
    return next((name for code, name in names.items() if code == found), "unknown")
