"""The same optimum from another solver and another model: a time-indexed program for HiGHS."""

from __future__ import annotations

from collections import defaultdict
from multiprocessing import get_context
from typing import Any

from omfs_daemon.simulate.optimum.instance import SmallJob, SmallLog


def in_own_process(problems: list[tuple[SmallLog, float, int, int]]) -> list[float | None]:
    """:func:`milp_optimum` of each. OR-tools brings a HiGHS of another release, and one process cannot load both."""
    with get_context("spawn").Pool(1) as pool:
        return pool.starmap(milp_optimum, problems)


def milp_optimum(log: SmallLog, limit: float, tick: int, horizon: int) -> float | None:
    """The least mean slowdown of the batch jobs; None if the limit cannot be held. horizon: ticks; all times of the
    log but overheads are multiples of a tick.

    A column per job, place, and start for a whole run, and per length for each part of a stopped one.
    """
    program = _Program(log, tick, horizon)
    for job in log.jobs:
        program.add_job(job)
    program.add_capacity()
    program.add_limit(limit)
    return program.solve()


class _Program:
    def __init__(self, log: SmallLog, tick: int, horizon: int) -> None:
        self._log, self._tick, self._horizon = log, tick, horizon
        import highspy

        self._solved = highspy.HighsModelStatus.kOptimal
        self._highs = highspy.Highs()
        self._highs.silent()
        self._held: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._slowdown: dict[bool, list[tuple[float, Any]]] = {False: [], True: []}

    def add_job(self, job: SmallJob) -> None:
        run, extra = job.run // self._tick, -(-job.overhead // self._tick)
        whole = []
        for place in self._log.places(job):
            chosen = self._starts(job, place, run)
            whole += chosen.values()
            self._ends(job, chosen, run)
        if job.realtime:
            self._highs.addConstr(self._highs.qsum(whole) == 1)
            return
        first, ended, resumed = [], defaultdict(list), defaultdict(list)
        for place in self._log.places(job):
            for length in range(-(-run // 10), run - -(-run // 10) + 1):
                one = self._starts(job, place, length + extra)
                two = self._starts(job, place, run - length + extra)
                first += one.values()
                self._highs.addConstr(self._highs.qsum(one.values()) == self._highs.qsum(two.values()))
                self._ends(job, two, run - length + extra)
                for start, chosen in one.items():
                    ended[start + length + extra].append(chosen)
                for start, chosen in two.items():
                    resumed[start].append(chosen)
        self._highs.addConstr(self._highs.qsum(whole + first) == 1)
        for now in range(self._horizon + 1):
            back = [chosen for start in resumed if start <= now for chosen in resumed[start]]
            gone = [chosen for end in ended if end <= now for chosen in ended[end]]
            if back:
                self._highs.addConstr(self._highs.qsum(back) <= self._highs.qsum(gone))

    def add_capacity(self) -> None:
        for held in self._held.values():
            self._highs.addConstr(self._highs.qsum(held) <= 1)

    def add_limit(self, limit: float) -> None:
        terms = self._slowdown[True]
        total = self._highs.qsum(weight * chosen for weight, chosen in terms)
        self._highs.addConstr(total <= limit * len(self._log.realtime) + 1e-9)

    def solve(self) -> float | None:
        self._highs.minimize(self._highs.qsum(weight * chosen for weight, chosen in self._slowdown[False]))
        if self._highs.getModelStatus() != self._solved:
            return None
        return float(self._highs.getObjectiveValue()) / len(self._log.batch)

    def _starts(self, job: SmallJob, place: int, length: int) -> dict[int, Any]:
        """A choice by start, in ticks, of holding the place for so long."""
        starts = range(-(-job.submit // self._tick), self._horizon - length + 1)
        choices = {start: self._highs.addBinary() for start in starts}
        for start, chosen in choices.items():
            for now in range(start, start + length):
                for unit in range(place, place + job.size, self._log.unit):
                    self._held[now, unit].append(chosen)
        return choices

    def _ends(self, job: SmallJob, choices: dict[int, Any], length: int) -> None:
        for start, chosen in choices.items():
            turnaround = (start + length) * self._tick - job.submit
            self._slowdown[job.realtime].append((turnaround / job.run, chosen))
