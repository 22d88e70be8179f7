"""The plan of one event, solved by CP-SAT: the reference of the search."""

from __future__ import annotations

from collections import defaultdict
from math import ceil
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.policy.replan.plan_problem import ANYWHERE, NO_PLACE, JobPlan, PlannedStarts, PlanProblem
from omfs_daemon.policy.replan.plan_search import FoundPlan, SearchLimits

_SCALE = 10**6
"""Of slowdowns in the objective, which is in whole numbers."""
_SECONDS = 5.0


class _Model:
    """Times in whole seconds from the event on, rounded up."""

    def __init__(self, problem: PlanProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        tasks = problem.tasks
        self.horizon = int(2 * (tasks.release.max() + tasks.length.sum() - problem.now)) + len(tasks.size)
        self.on_unit: defaultdict[int, list[Any]] = defaultdict(list)
        self.costs: list[Any] = []
        self.sunk = 0.0
        """What the waits until now cost."""
        self.starts: list[dict[tuple[int, int], tuple[Any, Any]]] = []
        for place in range(problem.places.first[1]):
            if (until := self.seconds(problem.free[place])) > 0:
                self.on_unit[place].append(self.model.new_fixed_size_interval_var(0, until, ""))
        for task in range(len(tasks.size)):
            self.starts.append(self._add(task))
        for intervals in self.on_unit.values():
            self.model.add_no_overlap(intervals)
        self.model.minimize(sum(self.costs))

    def seconds(self, time: float) -> int:
        return ceil(time - self.problem.now - 1e-6)

    def _hold(self, place: int, interval: Any) -> None:
        places = self.problem.places
        for other in places.shared[places.begin[place] : places.begin[place + 1]]:
            if other < places.first[1]:
                self.on_unit[int(other)].append(interval)

    def _add(self, task: int) -> dict[tuple[int, int], tuple[Any, Any]]:
        """By choice and place: whether it is taken, and when the job starts; one that goes on has no place."""
        tasks, places, model = self.problem.tasks, self.problem.places, self.model
        options: dict[tuple[int, int], tuple[Any, Any]] = {}
        end = model.new_int_var(0, self.horizon, "")
        runs = tasks.held[task] != NO_PLACE
        for choice in np.flatnonzero(tasks.usable[task]).tolist():
            chosen = []
            goes_on = runs and choice == 0
            fixed, size = tasks.fixed[task, choice], tasks.size[task]
            allowed = range(places.first[size], places.first[size + 1]) if fixed == ANYWHERE else (int(fixed),)
            length = ceil(tasks.length[task, choice] - 1e-6)
            for place in (NO_PLACE,) if goes_on else allowed:
                taken, start = model.new_bool_var(""), model.new_int_var(0, self.horizon, "")
                if goes_on:
                    model.add(end == self.seconds(tasks.release[task, 0])).only_enforce_if(taken)
                else:
                    model.add(start >= self.seconds(tasks.ready[task, choice])).only_enforce_if(taken)
                    model.add(end == start + length).only_enforce_if(taken)
                    self._hold(place, model.new_optional_fixed_size_interval_var(start, length, taken, ""))
                options[choice, place] = taken, start
                chosen.append(taken)
            if runs:
                is_chosen = model.new_bool_var("")
                model.add(sum(chosen) == is_chosen)
                until = self.seconds(tasks.release[task, choice])
                held = model.new_optional_fixed_size_interval_var(0, max(until, 0), is_chosen, "")
                self._hold(int(tasks.held[task]), held)
        model.add_exactly_one(taken for taken, _ in options.values())
        self._add_cost(task, end)
        return options

    def _add_cost(self, task: int, end: Any) -> None:
        tasks, terms, now = self.problem.tasks, self.problem.terms, self.problem.now
        each = _SCALE / tasks.estimate[task]
        waited = now - tasks.submit[task]
        self.sunk += (terms.realtime_weight if tasks.realtime[task] else 1.0) * waited / tasks.estimate[task]
        if not tasks.realtime[task]:
            self.costs.append(round(each) * end)
            return
        late = self.model.new_int_var(0, self.horizon + ceil(waited), "")
        self.model.add(late >= end + round(waited - terms.margin * tasks.estimate[task]))
        self.costs += [round(terms.realtime_weight * each) * end, round(terms.penalty * each) * late]


def solved_plan(problem: PlanProblem, last: Floats, limits: SearchLimits) -> FoundPlan:
    """The best plan that is found in ``_SECONDS``; takes what ``find_plan`` takes."""
    found = _Model(problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = _SECONDS
    solver.parameters.num_workers = 1
    status = solver.solve(found.model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    count = len(problem.tasks.size)
    choice, start, place = np.zeros(count, np.int64), np.full(count, np.nan), np.full(count, NO_PLACE)
    for task, options in enumerate(found.starts):
        for (chosen, at), (taken, begin) in options.items():
            if solver.boolean_value(taken):
                choice[task], place[task] = chosen, at
                if at != NO_PLACE:
                    start[task] = problem.now + solver.value(begin)
    cost = solver.objective_value / _SCALE + found.sunk
    return FoundPlan(JobPlan(np.argsort(start, kind="stable"), choice), PlannedStarts(start, place), cost, cost)
