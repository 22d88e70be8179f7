"""What a plan is made for: places, the jobs that hold them, and the jobs that wait.

Plain tuples of arrays, so that the functions on them run as they are and compile as they stand. Times are in seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ANYWHERE = -1
NO_PLACE = -1
GO_ON = 0
"""The first choice of a running job; the others preempt it."""


class PlanPlaces(NamedTuple):
    """Places numbered from the smallest size to the largest.

    width   by size, ascending: CPUs
    first   by size, and one entry more: the places of size k are ``first[k]`` to ``first[k + 1] - 1``
    begin   by place, and one entry more: the places that share a unit with it, itself among them, are
            ``shared[begin[place]:begin[place + 1]]``
    """

    width: Ints
    first: Ints
    begin: Ints
    shared: Ints


class PlanTasks(NamedTuple):
    """One row for each job that is planned; the first are those that run and can be preempted.

    A column for each choice: of a running job to go on, or a way to preempt it; of a waiting job only the first.

    size      which of the sizes of places
    realtime  whether it is a real-time job
    submit    when it was submitted
    estimate  how long it runs in all, by its limit or a prediction; its slowdown counts in these
    score     by which waiting batch jobs are ranked without a plan, the greatest first
    due       whether it is a real-time job that waits and is to be served before batch jobs
    price     what it costs to preempt it without a plan (slowdown_laws.py); inf: it may not be
    held      the place that it runs on; ``NO_PLACE`` if it waits
    usable    by choice: whether it may be taken
    release   by choice: when the place is free again; of a choice to go on, the expected end
    ready     by choice: when it can start, or start again
    length    by choice: how long it then holds a place, with what it takes to resume
    fixed     by choice: the place on which it must start, or ``ANYWHERE``
    """

    size: Ints
    realtime: Bools
    submit: Floats
    estimate: Floats
    score: Floats
    due: Bools
    price: Floats
    held: Ints
    usable: Bools
    release: Floats
    ready: Floats
    length: Floats
    fixed: Ints


class PlanTerms(NamedTuple):
    """What a plan costs: the slowdowns of batch jobs, ``realtime_weight`` times those of real-time jobs, and
    ``penalty`` times what a real-time slowdown is above ``margin``.

    realtime_only  no job is preempted but for a real-time job, which must be the next one on the place
    """

    realtime_weight: float = 0.5
    margin: float = 1.3
    penalty: float = 10.0
    realtime_only: bool = False


class PlanProblem(NamedTuple):
    """free: by place, when what is not planned leaves it (now, if nothing is there); now: the time."""

    places: PlanPlaces
    tasks: PlanTasks
    terms: PlanTerms
    free: Floats
    now: float


class JobPlan(NamedTuple):
    """order: tasks, first served first; all that run, and of those that wait the ones that are planned. choice: by
    task; 0 of one that waits."""

    order: Ints
    choice: Ints


class PlannedStarts(NamedTuple):
    """By task: when it starts and on which place; nan and ``NO_PLACE`` if it runs and goes on, or is not planned."""

    start: Floats
    place: Ints


def task_cost(tasks: PlanTasks, terms: PlanTerms, task: int, end: float) -> float:
    """What it costs that this job ends then."""
    slowdown = (end - tasks.submit[task]) / tasks.estimate[task]
    if not tasks.realtime[task]:
        return float(slowdown)
    return float(terms.realtime_weight * slowdown + terms.penalty * max(0.0, slowdown - terms.margin))


def running_tasks(tasks: PlanTasks) -> int:
    """How many of the tasks run; they are the first."""
    for task in range(len(tasks.held)):
        if tasks.held[task] == NO_PLACE:
            return task
    return len(tasks.held)


def hold_place(places: PlanPlaces, free: Floats, place: int, until: float) -> None:
    """This place, and all that share a unit with it, are not free before then."""
    for at in range(places.begin[place], places.begin[place + 1]):
        other = places.shared[at]
        if free[other] < until:
            free[other] = until
