"""Search for a cheap plan: late acceptance hill climbing over orders and choices (Burke and Bykov 2017)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.replan.first_plans import first_plans
from omfs_daemon.policy.replan.hole_starts import fill_holes
from omfs_daemon.policy.replan.list_schedule import ScheduleSpace, list_schedule, schedule_space
from omfs_daemon.policy.replan.plan_problem import (
    GO_ON,
    NO_PLACE,
    Floats,
    Ints,
    JobPlan,
    PlannedStarts,
    PlanProblem,
    running_tasks,
    task_cost,
)

_HISTORY = 30
"""A change is accepted if it costs no more than the plan that many changes ago did."""
_ROUNDING = 1e-9
_MULTIPLIER, _MODULUS = 48271, 2**31 - 1


class SearchLimits(NamedTuple):
    """waiting: jobs of which a plan is made, besides real-time jobs; evaluations: plans that are tried; seed: of the
    choice of changes, from 1 to 2,147,483,646."""

    waiting: int = 48
    evaluations: int = 400
    seed: int = 1


class FoundPlan(NamedTuple):
    """The cheapest plan found, when and where it lets jobs start, and its cost; ``start_cost``: of the cheapest plan
    that the search began with."""

    plan: JobPlan
    starts: PlannedStarts
    cost: float
    start_cost: float


def find_plan(problem: PlanProblem, last: Floats, limits: SearchLimits) -> FoundPlan:
    """The cheapest plan found; never worse than those of ``first_plans``, and the same for the same arguments.

    ``last``: by task, its position in the plan before this one.
    """
    orders, choices = first_plans(problem, limits.waiting, last)
    space = schedule_space(len(problem.free), len(problem.tasks.size))
    best = JobPlan(orders[0].copy(), choices[0].copy())
    least = list_schedule(problem, best, space, np.inf)
    for row in range(1, len(orders)):
        cost = list_schedule(problem, JobPlan(orders[row], choices[row]), space, least)
        if cost < least:
            least = cost
            best.order[:], best.choice[:] = orders[row], choices[row]
    start_cost = least
    if least > _least_cost(problem, best) + _ROUNDING:
        least = _climb(problem, best, least, space, limits)
    least = _without_needless(problem, best, least, space)
    list_schedule(problem, best, space, np.inf)
    fill_holes(problem, best, space.starts)
    return FoundPlan(best, space.starts, least, start_cost)


def _least_cost(problem: PlanProblem, plan: JobPlan) -> float:
    """No plan costs less: all that runs goes on, and all that waits starts as soon as it can."""
    tasks = problem.tasks
    cost = 0.0
    for task in plan.order:
        end = tasks.release[task, GO_ON]
        if tasks.held[task] == NO_PLACE:
            end = tasks.ready[task, GO_ON] + tasks.length[task, GO_ON]
        cost += task_cost(tasks, problem.terms, task, end)
    return cost


def _climb(problem: PlanProblem, best: JobPlan, least: float, space: ScheduleSpace, limits: SearchLimits) -> float:
    """Late acceptance from ``best``, which becomes the best plan found; its cost."""
    current = JobPlan(best.order.copy(), best.choice.copy())
    trial = JobPlan(best.order.copy(), best.choice.copy())
    random = np.full(1, limits.seed, np.int64)
    costs = np.full(_HISTORY, least)
    cost = least
    running = running_tasks(problem.tasks)
    if len(best.order) < 2 and running == 0:
        return least
    for step in range(limits.evaluations):
        trial.order[:], trial.choice[:] = current.order, current.choice
        _change(problem, trial, running, random)
        accepted = max(cost, costs[step % _HISTORY])
        found = list_schedule(problem, trial, space, accepted + _ROUNDING)
        if found < np.inf:
            current.order[:], current.choice[:] = trial.order, trial.choice
            cost = found
            if cost < least - _ROUNDING:
                least = cost
                best.order[:], best.choice[:] = trial.order, trial.choice
        costs[step % _HISTORY] = min(cost, costs[step % _HISTORY])
    return least


def _without_needless(problem: PlanProblem, plan: JobPlan, cost: float, space: ScheduleSpace) -> float:
    """Let each running job go on whose preemption saves nothing; the cost."""
    for task in range(running_tasks(problem.tasks)):
        choice = plan.choice[task]
        if choice == GO_ON:
            continue
        plan.choice[task] = GO_ON
        found = list_schedule(problem, plan, space, cost + _ROUNDING)
        if found < np.inf:
            cost = min(cost, found)
        else:
            plan.choice[task] = choice
    return cost


def _below(random: Ints, limit: int) -> int:
    """A number from 0 to below the limit (Park and Miller 1988)."""
    random[0] = random[0] * _MULTIPLIER % _MODULUS
    return int(random[0] % limit)


def _change(problem: PlanProblem, plan: JobPlan, running: int, random: Ints) -> None:
    """One random change: move a job, exchange two, change a choice, or preempt all that is on a place for a job."""
    count = len(plan.order)
    kind = _below(random, 10)
    if running == 0 or kind < 4:
        _move(plan.order, _below(random, count), _below(random, count))
    elif kind < 6:
        one, other = _below(random, count), _below(random, count)
        plan.order[one], plan.order[other] = plan.order[other], plan.order[one]
    elif kind < 8 or running == count:
        task = _below(random, running)
        _choose(problem, plan, task, _below(random, problem.tasks.usable.shape[1]))
        if plan.choice[task] != GO_ON:
            _move(plan.order, _position(plan.order, task), _below(random, count))
    else:
        _preempt_for(problem, plan, running, random)


def _preempt_for(problem: PlanProblem, plan: JobPlan, running: int, random: Ints) -> None:
    """A waiting job comes first, and all that runs on one of its places is preempted."""
    places, tasks, order = problem.places, problem.tasks, plan.order
    source = _below(random, len(order))
    while tasks.held[order[source]] != NO_PLACE:
        source = (source + 1) % len(order)
    task = order[source]
    size = tasks.size[task]
    place = tasks.fixed[task, GO_ON]
    if place == NO_PLACE:
        place = places.first[size] + _below(random, places.first[size + 1] - places.first[size])
    method = _below(random, tasks.usable.shape[1])
    for at in range(places.begin[place], places.begin[place + 1]):
        for victim in range(running):
            if tasks.held[victim] == places.shared[at]:
                _choose(problem, plan, victim, method)
    _move(order, source, 0)


def _choose(problem: PlanProblem, plan: JobPlan, task: int, choice: int) -> None:
    if problem.tasks.usable[task, choice]:
        plan.choice[task] = choice


def _position(order: Ints, task: int) -> int:
    for at in range(len(order)):
        if order[at] == task:
            return at
    return -1


def _move(order: Ints, source: int, target: int) -> None:
    """The job there goes to another position; those between move up or down."""
    task = order[source]
    if source < target:
        for at in range(source, target):
            order[at] = order[at + 1]
    else:
        for at in range(source, target, -1):
            order[at] = order[at - 1]
    order[target] = task
