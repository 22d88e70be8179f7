"""What else can start now without delaying anything that is planned."""

from __future__ import annotations

import numpy as np

from omfs_daemon.policy.replan.plan_problem import (
    ANYWHERE,
    GO_ON,
    NO_PLACE,
    Floats,
    Ints,
    JobPlan,
    PlannedStarts,
    PlanProblem,
    hold_place,
    running_tasks,
)


def fill_holes(problem: PlanProblem, plan: JobPlan, starts: PlannedStarts) -> None:
    """Jobs start now, in order of the plan and then of their score, on places that are free until the next planned
    start there; ``starts`` is changed."""
    tasks, places, now = problem.tasks, problem.places, problem.now
    running = running_tasks(tasks)
    free, taken_from = problem.free.copy(), np.full(len(problem.free), np.inf)
    for task in range(running):
        hold_place(places, free, tasks.held[task], tasks.release[task, plan.choice[task]])
    for task in range(len(tasks.size)):
        if starts.start[task] <= now:
            hold_place(places, free, starts.place[task], now + tasks.length[task, plan.choice[task]])
        elif starts.place[task] != NO_PLACE:
            for at in range(places.begin[starts.place[task]], places.begin[starts.place[task] + 1]):
                other = places.shared[at]
                taken_from[other] = min(taken_from[other], starts.start[task])
    for task in _candidates(problem, plan, starts):
        place = _hole(problem, task, free, taken_from)
        if place != NO_PLACE:
            starts.start[task], starts.place[task] = now, place
            hold_place(places, free, place, now + tasks.length[task, GO_ON])


def _candidates(problem: PlanProblem, plan: JobPlan, starts: PlannedStarts) -> Ints:
    """Waiting jobs that do not start now: those of the plan, then the others."""
    tasks = problem.tasks
    running, count = running_tasks(tasks), len(tasks.size)
    position = np.full(count, len(plan.order), np.int64)
    for at in range(len(plan.order)):
        position[plan.order[at]] = at
    by_score = np.argsort(-tasks.score, kind="mergesort")
    found = np.empty(count, np.int64)
    size = 0
    for task in by_score[np.argsort(position[by_score], kind="mergesort")]:
        if task >= running and tasks.ready[task, GO_ON] <= problem.now and not starts.start[task] <= problem.now:
            found[size] = task
            size += 1
    return found[:size]


def _hole(problem: PlanProblem, task: int, free: Floats, taken_from: Floats) -> int:
    """The place of the job's size with the shortest hole that is long enough, of several the one that blocks the fewest
    free places; ``NO_PLACE`` if there is none."""
    tasks, places, now = problem.tasks, problem.places, problem.now
    size, end = tasks.size[task], now + tasks.length[task, GO_ON]
    fixed = tasks.fixed[task, GO_ON]
    best, earliest, fewest = NO_PLACE, np.inf, 0
    for place in range(places.first[size], places.first[size + 1]):
        is_allowed = fixed in (ANYWHERE, place)
        if not is_allowed or free[place] > now or end > taken_from[place] or taken_from[place] > earliest:
            continue
        blocked = 0
        for at in range(places.begin[place], places.begin[place + 1]):
            if free[places.shared[at]] <= now:
                blocked += 1
        if best == NO_PLACE or taken_from[place] < earliest or blocked < fewest:
            best, earliest, fewest = place, taken_from[place], blocked
    return best
