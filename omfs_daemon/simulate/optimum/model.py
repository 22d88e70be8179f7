"""The model of the optimum for CP-SAT: one optional interval per job, place, and part; no overlap on any unit.

Nickolay et al., arXiv 2103.13130, section 5 (Eq. 21-55), without its sequences of jobs: the solver finds those.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import gcd, lcm
from typing import Any

from ortools.sat.python import cp_model

from omfs_daemon.simulate.optimum.instance import Part, Schedule, SmallJob, SmallLog

_SCALE = 10**7
"""Of slowdowns in the objective, which is in whole numbers."""
_LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class _JobVariables:
    """In ticks. stopped: None if the job is never stopped; else ``first`` is the run time of part 1."""

    on: dict[int, Any]
    start: Any
    end: Any
    stopped: Any = None
    first: Any = None
    resumed: Any = None


@dataclass(slots=True)
class OptimumModel:
    """A log as a model of CP-SAT.

    tick   seconds to which every time is rounded up: what fits in ticks fits in seconds
    stops  whether batch jobs may be stopped, once each
    """

    log: SmallLog
    tick: int
    stops: bool
    model: Any = field(default_factory=cp_model.CpModel)
    _jobs: dict[SmallJob, _JobVariables] = field(default_factory=dict)
    _on_unit: defaultdict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    _holding: list[tuple[Any, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        horizon = max(self._ticks(job.submit) for job in self.log.jobs)
        horizon += sum(self._ticks(job.run) + 2 * self._ticks(job.overhead) for job in self.log.jobs)
        for job, places in canonical_places(self.log):
            on = {place: self.model.new_bool_var("") for place in places}
            self.model.add_exactly_one(on.values())
            stoppable = self.stops and not job.realtime and 2 * self._least_part(job) <= self._ticks(job.run)
            self._jobs[job] = self._with_stop(job, on, horizon) if stoppable else self._without_stop(job, on, horizon)
        for held in self._on_unit.values():
            self.model.add_no_overlap(held)
        # Follows from the above, and saves most of the search.
        self.model.add_cumulative(*zip(*self._holding, strict=True), self.log.cpus)

    def bound_realtime(self, limit: float) -> None:
        """Eq. 37: the real-time jobs' mean slowdown is at most this."""
        jobs = self.log.realtime
        scale = lcm(*(job.run // gcd(job.run, self.tick) for job in jobs))
        scale = scale if scale <= _LARGEST else _SCALE
        weighted = (-(-scale * self.tick // job.run) * self._turnaround(job) for job in jobs)
        self.model.add(sum(weighted) <= int(limit * len(jobs) * scale * (1 + 1e-12)))

    def minimize(self, jobs: tuple[SmallJob, ...]) -> float:
        """Eq. 36: the mean slowdown of these jobs; returns what one of the objective is of it."""
        self.model.minimize(sum(round(_SCALE * self.tick / job.run) * self._turnaround(job) for job in jobs))
        return 1 / (_SCALE * len(jobs))

    def schedule(self, solver: Any) -> Schedule:
        """What the solver has found, in order of job and part."""
        return tuple(part for job in self.log.jobs for part in self._parts(solver, job))

    def _parts(self, solver: Any, job: SmallJob) -> tuple[Part, ...]:
        found = self._jobs[job]
        place = next(place for place, chosen in found.on.items() if solver.boolean_value(chosen))
        start = solver.value(found.start) * self.tick
        if found.stopped is None or not solver.boolean_value(found.stopped):
            return (Part(job, 1, place, start, start + job.run, 0),)
        first = min(solver.value(found.first) * self.tick, job.run)
        resumed = solver.value(found.resumed) * self.tick
        overhead = self._ticks(job.overhead) * self.tick
        return (
            Part(job, 1, place, start, start + first + overhead, overhead),
            Part(job, 2, place, resumed, resumed + overhead + job.run - first, overhead),
        )

    def _without_stop(self, job: SmallJob, on: dict[int, Any], horizon: int) -> _JobVariables:
        run = self._ticks(job.run)
        start = self.model.new_int_var(self._ticks(job.submit), horizon, "")
        for place, chosen in on.items():
            self._hold(job, place, self.model.new_optional_fixed_size_interval_var(start, run, chosen, ""))
        self._holding.append((self.model.new_fixed_size_interval_var(start, run, ""), job.size))
        return _JobVariables(on, start, start + run)

    def _with_stop(self, job: SmallJob, on: dict[int, Any], horizon: int) -> _JobVariables:
        """Part 2 is empty, and begins where part 1 ends, unless the job is stopped."""
        model, run, overhead, least = (
            self.model, self._ticks(job.run), self._ticks(job.overhead), self._least_part(job)
        )  # fmt: skip
        stopped = model.new_bool_var("")
        first = model.new_int_var(least, run, "")
        model.add(first == run).only_enforce_if(~stopped)
        model.add(first <= run - least).only_enforce_if(stopped)
        start, resumed = (model.new_int_var(self._ticks(job.submit), horizon, "") for _ in range(2))
        size_1, size_2 = (model.new_int_var(0, run + overhead, "") for _ in range(2))
        end_1, end_2 = (model.new_int_var(0, horizon, "") for _ in range(2))
        model.add(size_1 == first + overhead * stopped)
        model.add(size_2 == run - first + overhead * stopped)
        model.add(end_1 == start + size_1)
        model.add(end_2 == resumed + size_2)
        model.add(resumed == end_1).only_enforce_if(~stopped)
        model.add(resumed > end_1).only_enforce_if(stopped)
        # Follows from the above, too.
        model.add(end_2 > start + run + 2 * overhead).only_enforce_if(stopped)
        for place, chosen in on.items():
            back = model.new_bool_var("")
            model.add_implication(back, chosen)
            model.add_implication(back, stopped)
            model.add_bool_or(back, ~chosen, ~stopped)
            self._hold(job, place, model.new_optional_interval_var(start, size_1, end_1, chosen, ""))
            self._hold(job, place, model.new_optional_interval_var(resumed, size_2, end_2, back, ""))
        self._holding.append((model.new_interval_var(start, size_1, end_1, ""), job.size))
        self._holding.append((model.new_optional_interval_var(resumed, size_2, end_2, stopped, ""), job.size))
        return _JobVariables(on, start, end_2, stopped, first, resumed)

    def _hold(self, job: SmallJob, place: int, interval: Any) -> None:
        for unit in range(place, place + job.size, self.log.unit):
            self._on_unit[unit].append(interval)

    def _turnaround(self, job: SmallJob) -> Any:
        """In ticks. A submission between two ticks counts from the earlier one, so that a bound stays one."""
        return self._jobs[job].end - job.submit // self.tick

    def _least_part(self, job: SmallJob) -> int:
        """A tenth of the run time (Eq. 51)."""
        return self._ticks(-(-job.run // 10))

    def _ticks(self, seconds: int) -> int:
        return -(-seconds // self.tick)


def canonical_places(log: SmallLog) -> list[tuple[SmallJob, tuple[int, ...]]]:
    """Each job with the places to be tried: of those that differ by exchanging halves of blocks, only one.

    The smallest job may take its first place. Then places of the next one differ only by the least block that holds
    both jobs.
    """
    ordered = sorted(log.jobs, key=lambda job: (job.size, job.job_id))
    choices = {job: tuple(log.places(job)) for job in ordered}
    if log.cpus // log.unit & (log.cpus // log.unit - 1):
        return list(choices.items())  # blocks of such a machine are not all alike
    choices[ordered[0]] = (0,)
    for job in ordered[1:2]:
        choices[job] = tuple(place for place in choices[job] if not place // job.size & (place // job.size - 1))
    return list(choices.items())
