"""Plans from which the search starts: by rules of thumb, and what would be done without a plan."""

from __future__ import annotations

import numpy as np

from omfs_daemon.policy.replan.plan_problem import (
    ANYWHERE,
    GO_ON,
    NO_PLACE,
    Floats,
    Ints,
    JobPlan,
    PlanProblem,
    hold_place,
    running_tasks,
)

_BY_SCORE = 4
"""Of the jobs that are planned one in so many is chosen by its score, so that none waits forever."""
_PLANS = 5


def first_plans(problem: PlanProblem, most_waiting: int, last: Floats) -> tuple[Ints, Ints]:
    """Orders and choices, one row each; the last row is the decision without a plan (Nickolay et al. 2021, Alg. 1, 2).

    most_waiting  of so many waiting jobs a plan is made, and of all real-time jobs
    last          by task: its position in the plan before this one
    """
    tasks = problem.tasks
    count = len(tasks.size)
    planned = _planned(problem, most_waiting)
    slowdown = (tasks.estimate + problem.now - tasks.submit) / tasks.estimate
    batch = np.where(tasks.realtime, 0, 1)
    density = -_density(problem)
    ranks = (
        _ranks(np.where(tasks.realtime, -slowdown, -tasks.score), batch),
        _ranks(density, batch),
        _ranks(density, np.zeros(count, np.int64)),
        _ranks(last, np.zeros(count, np.int64)),
        _ranks(np.where(tasks.due, -slowdown, -tasks.score), np.where(tasks.due, 0, 1)),
    )
    orders = np.empty((_PLANS, planned.sum()), np.int64)
    choices = np.zeros((_PLANS, count), np.int64)
    for row in range(_PLANS):
        at = 0
        for task in ranks[row]:
            if planned[task]:
                orders[row, at] = task
                at += 1
    _choose_cheapest(problem, JobPlan(orders[_PLANS - 1], choices[_PLANS - 1]))
    return orders, choices


def _ranks(key: Floats, group: Ints) -> Ints:
    """The tasks by group, in each by key, the least first; those that are equal stay as they are."""
    by_key = np.argsort(key, kind="mergesort")
    return by_key[np.argsort(group[by_key], kind="mergesort")]


def _density(problem: PlanProblem) -> Floats:
    """What a wait costs for the CPU seconds that the job needs: the best order if there were one place (Smith 1956)."""
    tasks = problem.tasks
    length = np.empty(len(tasks.size))
    for task in range(len(length)):
        choice = GO_ON if tasks.held[task] == NO_PLACE else tasks.usable.shape[1] - 1
        length[task] = max(tasks.length[task, choice], 1.0) * problem.places.width[tasks.size[task]]
    return 1.0 / (tasks.estimate * length)


def _planned(problem: PlanProblem, most_waiting: int) -> np.ndarray:
    """Of which tasks a plan is made: all that run, all real-time jobs, and those that pay most or wait most."""
    tasks = problem.tasks
    running = running_tasks(tasks)
    chosen = tasks.realtime.copy()
    chosen[:running] = True
    left = most_waiting - int(chosen[running:].sum())
    by_score = max(left, 0) // _BY_SCORE
    for kind in range(2):
        key = -tasks.score if kind == 0 else -_density(problem)
        share = by_score if kind == 0 else left - by_score
        for task in np.argsort(key, kind="mergesort"):
            if share <= 0:
                break
            if not chosen[task]:
                chosen[task] = True
                share -= 1
    return chosen


def _choose_cheapest(problem: PlanProblem, plan: JobPlan) -> None:
    """For each real-time job that is due, in the order of the plan: a place that is free, or the one on which the
    running jobs cost least."""
    tasks, places = problem.tasks, problem.places
    free = problem.free.copy()
    for task in range(running_tasks(tasks)):
        hold_place(places, free, tasks.held[task], tasks.release[task, GO_ON])
    for task in plan.order:
        if not tasks.due[task]:
            continue
        place = _cheapest_place(problem, plan, task, free)
        if place == NO_PLACE:
            continue
        for at in range(places.begin[place], places.begin[place + 1]):
            for victim in range(running_tasks(tasks)):
                if tasks.held[victim] == places.shared[at] and plan.choice[victim] == GO_ON:
                    plan.choice[victim] = _first_method(problem, victim)
        hold_place(places, free, place, np.inf)


def _first_method(problem: PlanProblem, task: int) -> int:
    usable = problem.tasks.usable
    for choice in range(1, usable.shape[1]):
        if usable[task, choice]:
            return choice
    return GO_ON


def _cheapest_place(problem: PlanProblem, plan: JobPlan, task: int, free: Floats) -> int:
    """A place of the job's size; ``NO_PLACE`` if none is eligible."""
    tasks, places = problem.tasks, problem.places
    size = tasks.size[task]
    best, least = NO_PLACE, np.inf
    for place in range(places.first[size], places.first[size + 1]):
        if tasks.fixed[task, GO_ON] not in (ANYWHERE, place):
            continue
        price = 0.0
        if free[place] > problem.now:
            price = _price(problem, plan, place, free)
        if price < least:
            best, least = place, price
    return best


def _price(problem: PlanProblem, plan: JobPlan, place: int, free: Floats) -> float:
    """Of all that runs on a place; inf if something on it may not be preempted."""
    tasks, places = problem.tasks, problem.places
    size = np.searchsorted(places.first, place, side="right") - 1
    price = 0.0
    until = problem.free[place]
    if until > problem.now or free[place] == np.inf:
        return np.inf
    for at in range(places.begin[place], places.begin[place + 1]):
        for victim in range(running_tasks(tasks)):
            if tasks.held[victim] != places.shared[at]:
                continue
            if plan.choice[victim] != GO_ON or tasks.size[victim] > size or _first_method(problem, victim) == GO_ON:
                return np.inf
            price += tasks.price[victim]
    return price
