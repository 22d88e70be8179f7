"""From an order of jobs and a choice for each that runs to starts on places: serial list scheduling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.replan.plan_problem import (
    GO_ON,
    NO_PLACE,
    Bools,
    Floats,
    Ints,
    JobPlan,
    PlannedStarts,
    PlanPlaces,
    PlanProblem,
    hold_place,
    running_tasks,
    task_cost,
)


class ScheduleSpace(NamedTuple):
    """Memory for one schedule at a time.

    free     by place: from when on nothing that is planned so far is there
    claims   by place: how many preempted jobs hold a part of it that a real-time job is still to take
    claimed  by task: whether a real-time job takes the place that it is preempted on
    """

    free: Floats
    claims: Ints
    claimed: Bools
    starts: PlannedStarts


def schedule_space(places: int, tasks: int) -> ScheduleSpace:
    """For so many."""
    return ScheduleSpace(
        np.empty(places),
        np.zeros(places, np.int64),
        np.zeros(tasks, np.bool_),
        PlannedStarts(np.full(tasks, np.nan), np.full(tasks, NO_PLACE, np.int64)),
    )


def list_schedule(problem: PlanProblem, plan: JobPlan, space: ScheduleSpace, bound: float) -> float:
    """The plan's cost, and its starts in ``space``; inf, with the starts of a part, once the cost reaches ``bound``.

    In the order of the plan each job starts as early as one of its places is free for good: what comes later in the
    order never starts before it on the same units. Of places that are free at one time it takes the one that delays
    larger places least.
    """
    places, tasks, terms = problem.places, problem.tasks, problem.terms
    free, start, place = space.free, space.starts.start, space.starts.place
    free[:] = problem.free
    cost = 0.0
    unclaimed = 0
    if terms.realtime_only:
        space.claims[:] = 0
    for task in range(running_tasks(tasks)):
        held, choice = tasks.held[task], plan.choice[task]
        until = tasks.release[task, choice]
        hold_place(places, free, held, until)
        if choice == GO_ON:
            cost += task_cost(tasks, terms, task, until)
            start[task], place[task] = np.nan, NO_PLACE
        elif terms.realtime_only:
            unclaimed += 1
            space.claimed[task] = False
            _claim(places, space.claims, held, 1)
    if cost >= bound:
        return np.inf
    for task in plan.order:
        choice = plan.choice[task]
        if choice == GO_ON and tasks.held[task] != NO_PLACE:
            continue
        length = tasks.length[task, choice]
        mayclaim = unclaimed > 0 and tasks.realtime[task]
        at = _earliest_place(problem, space, task, choice, unclaimed > 0 and not mayclaim)
        if at == NO_PLACE:
            return np.inf
        begin = max(free[at], tasks.ready[task, choice])
        start[task], place[task] = begin, at
        hold_place(places, free, at, begin + length)
        if mayclaim and space.claims[at] > 0:
            unclaimed -= _take_claims(problem, plan, space, at)
        cost += task_cost(tasks, terms, task, begin + length)
        if cost >= bound:
            return np.inf
    return cost if unclaimed == 0 else np.inf


def _claim(places: PlanPlaces, claims: Ints, place: int, more: int) -> None:
    for at in range(places.begin[place], places.begin[place + 1]):
        claims[places.shared[at]] += more


def _take_claims(problem: PlanProblem, plan: JobPlan, space: ScheduleSpace, place: int) -> int:
    """A real-time job takes this place: how many of the preempted jobs it was that held a part of it."""
    places, tasks = problem.places, problem.tasks
    taken = 0
    for task in range(running_tasks(tasks)):
        held = tasks.held[task]
        if plan.choice[task] == GO_ON or space.claimed[task]:
            continue
        for at in range(places.begin[place], places.begin[place + 1]):
            if places.shared[at] == held:
                space.claimed[task] = True
                _claim(places, space.claims, held, -1)
                taken += 1
                break
    return taken


def _earliest_place(problem: PlanProblem, space: ScheduleSpace, task: int, choice: int, unclaimed_only: bool) -> int:
    """The place on which it starts first; ``NO_PLACE`` if all are claimed."""
    places, tasks, free = problem.places, problem.tasks, space.free
    fixed = tasks.fixed[task, choice]
    if fixed != NO_PLACE:
        return NO_PLACE if unclaimed_only and space.claims[fixed] > 0 else int(fixed)
    size, ready = tasks.size[task], tasks.ready[task, choice]
    chosen, earliest, least = NO_PLACE, np.inf, -1.0
    for place in range(places.first[size], places.first[size + 1]):
        begin = max(free[place], ready)
        if begin > earliest or (unclaimed_only and space.claims[place] > 0):
            continue
        if begin < earliest:
            chosen, earliest, least = place, begin, -1.0
            continue
        end = begin + tasks.length[task, choice]
        if least < 0.0:
            least = _delay(places, free, chosen, end)
        delay = _delay(places, free, place, end)
        if delay < least:
            chosen, least = place, delay
    return chosen


def _delay(places: PlanPlaces, free: Floats, place: int, end: float) -> float:
    """By how much all places that share a unit with this one would be free later."""
    total = 0.0
    for at in range(places.begin[place], places.begin[place + 1]):
        total += max(0.0, end - free[places.shared[at]])
    return total
