"""A found plan, checked against its problem without the code that makes plans."""

from __future__ import annotations

import numpy as np

from omfs_daemon.policy.replan.plan_problem import ANYWHERE, GO_ON, NO_PLACE, PlanProblem
from omfs_daemon.policy.replan.plan_search import FoundPlan


def faults_of_plan(problem: PlanProblem, found: FoundPlan) -> list[str]:
    """What is wrong; empty if nothing is: choices that are not usable, starts too early or elsewhere, two jobs at once
    on places that share a unit, a cost that the starts do not come to, or one above where the search began."""
    tasks, places = problem.tasks, problem.places
    start, place, choice = found.starts.start, found.starts.place, found.plan.choice
    faults, cost, holds = [], 0.0, []
    for task in range(len(tasks.size)):
        runs = tasks.held[task] != NO_PLACE
        if not tasks.usable[task, choice[task]]:
            faults.append(f"task {task}: choice {choice[task]}")
        if runs:
            holds.append((tasks.held[task], -np.inf, tasks.release[task, choice[task]]))
        if runs and choice[task] == GO_ON:
            end = tasks.release[task, GO_ON]
        elif place[task] == NO_PLACE:
            if task in found.plan.order:
                faults.append(f"task {task} is not planned")
            continue
        else:
            end = start[task] + tasks.length[task, choice[task]]
            holds.append((place[task], start[task], end))
            fixed, size = tasks.fixed[task, choice[task]], tasks.size[task]
            earliest = max(tasks.ready[task, choice[task]], problem.free[place[task]])
            if start[task] < earliest or fixed not in (ANYWHERE, place[task]):
                faults.append(f"task {task} starts at {start[task]} on {place[task]}")
            if not places.first[size] <= place[task] < places.first[size + 1]:
                faults.append(f"task {task} is on a place of another size")
        if task in found.plan.order:
            slowdown = (end - tasks.submit[task]) / tasks.estimate[task]
            late = max(0.0, slowdown - problem.terms.margin)
            cost += (
                problem.terms.realtime_weight * slowdown + problem.terms.penalty * late
                if tasks.realtime[task]
                else slowdown
            )
    for number, (one, begin, end) in enumerate(holds):
        shared = places.shared[places.begin[one] : places.begin[one + 1]]
        for other, other_begin, other_end in holds[:number]:
            is_known = begin == other_begin == -np.inf
            if not is_known and other in shared and begin < other_end - 1e-6 and other_begin < end - 1e-6:
                faults.append(f"places {one} and {other}: {(begin, end)} and {(other_begin, other_end)}")
    if cost > found.cost + 1e-6 or found.cost > found.start_cost + 1e-9:
        faults.append(f"cost {found.cost}, from the starts {cost}, at the begin {found.start_cost}")
    return faults
