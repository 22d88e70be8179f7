"""From the state of a simulated machine of places to what a plan is made for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.replan.plan_problem import (
    ANYWHERE,
    GO_ON,
    NO_PLACE,
    PlanPlaces,
    PlanProblem,
    PlanTasks,
    PlanTerms,
    hold_place,
)
from omfs_daemon.policy.rules.checkpoint_laws import victim_cost, wfp_score
from omfs_daemon.policy.rules.realtime_terms import CostWeights
from omfs_daemon.policy.rules.slowdown_laws import running_slowdown
from omfs_daemon.predict.prediction import expected_run

CHECKPOINT, KILL = 1, 2
"""Choices of a running job, after ``GO_ON``."""
_SHORTEST = 60.0
"""Seconds that a job is expected to run on that has used up its estimate."""

ExpectedEnd = Callable[[float, float, float], float]
"""When a job is expected to end: of its start, its estimate, and the time now; later than now."""


class PlacedJobs(NamedTuple):
    """What is known of the jobs from the start; one entry per job, in order of submission; seconds.

    run         what it runs; estimate: what its slowdown counts with, more than 0
    limit       what it runs at most, as far as is known
    length      what plans take it to run; predicted: what is predicted, for the costs of victims; inf: nothing is
    kind        which of the sizes of places
    act_at      when a waiting real-time job is due; inf: never
    victim_max  the slowdown above which a job is not preempted without a plan; -inf: it never is
    seconds     to write or to read a checkpoint; queueing: for which that occupies what all share
    """

    submit: Floats
    run: Floats
    estimate: Floats
    limit: Floats
    length: Floats
    predicted: Floats
    cpus: Ints
    kind: Ints
    realtime: Bools
    act_at: Floats
    victim_max: Floats
    seconds: Floats
    queueing: Floats


class PlacedState(NamedTuple):
    """What becomes of the jobs; one entry per job; seconds.

    done        work that a checkpoint has
    place       on which it runs, or must go on
    begin       of its present stay there; works_from: when it has read its checkpoint
    gone        when its checkpoint is written
    """

    done: Floats
    place: Ints
    begin: Floats
    works_from: Floats
    gone: Floats

    @classmethod
    def at_begin(cls, count: int) -> PlacedState:
        """Of so many jobs that are still to come."""
        return cls(np.zeros(count), np.full(count, NO_PLACE), np.zeros(count), np.zeros(count), np.zeros(count))


class PlanRules(NamedTuple):
    """terms: of the plan; writes: whether a job that is preempted may write a checkpoint; weights: of the cost of a
    victim without a plan."""

    terms: PlanTerms
    writes: bool
    weights: CostWeights


class PlacedMachine(NamedTuple):
    """All that a simulated machine of places is."""

    jobs: PlacedJobs
    state: PlacedState
    places: PlanPlaces
    rules: PlanRules
    expected_end: ExpectedEnd


class PresentJobs(NamedTuple):
    """Jobs that run and may be preempted, jobs that run and may not, jobs whose checkpoint is being written, jobs that
    wait."""

    running: Sequence[int]
    fixed: Sequence[int]
    writing: Sequence[int]
    waiting: Sequence[int]

    @property
    def planned(self) -> Ints:
        """All but those that nothing can change."""
        return np.array([*self.running, *self.writing, *self.waiting], dtype=np.int64)


class _Choices(NamedTuple):
    """The columns of :class:`PlanTasks` with an entry for each choice."""

    usable: Bools
    release: Floats
    ready: Floats
    length: Floats
    fixed: Ints


def plan_problem_of(machine: PlacedMachine, present: PresentJobs, now: float) -> PlanProblem:
    """Its tasks are those of ``present.planned``, in that order."""
    jobs, state, places = machine.jobs, machine.state, machine.places
    free = np.full(len(places.begin) - 1, now)
    for job in present.fixed:
        hold_place(places, free, state.place[job], _expected_end(machine, job, now))
    for job in present.writing:
        hold_place(places, free, state.place[job], state.gone[job])
    planned = present.planned
    choices = _choices_of_waiting(machine, present, now)
    held, price = np.full(len(planned), NO_PLACE), np.full(len(planned), np.inf)
    only_realtime = machine.rules.terms.realtime_only
    may_preempt = not only_realtime or bool(jobs.realtime[planned[len(present.running) :]].any())
    for task, job in enumerate(present.running):
        held[task], price[task] = state.place[job], _price(machine, job, now)
        _choose_for_running(machine, choices, task, job, may_preempt, now)
    submit, estimate, cpus = jobs.submit[planned], jobs.estimate[planned], jobs.cpus[planned]
    score = [wfp_score(*job, int(places.width[-1]), now) for job in zip(submit, estimate, cpus, strict=True)]
    realtime = jobs.realtime[planned]
    due = realtime & (jobs.act_at[planned] <= now)
    tasks = PlanTasks(jobs.kind[planned], realtime, submit, estimate, np.array(score), due, price, held, *choices)
    return PlanProblem(places, tasks, machine.rules.terms, free, now)


def _choices_of_waiting(machine: PlacedMachine, present: PresentJobs, now: float) -> _Choices:
    """Of all that are planned: what it is to begin, or to begin again as the last checkpoint lets them."""
    jobs, state, planned = machine.jobs, machine.state, present.planned
    shape = (len(planned), KILL + 1)
    is_saved = state.done[planned] > 0
    back = np.where(is_saved, jobs.seconds[planned], 0.0)
    rest = np.maximum(jobs.length[planned] - state.done[planned], _SHORTEST)
    usable = np.zeros(shape, dtype=np.bool_)
    usable[:, GO_ON] = True
    ready = np.full(shape, now)
    written = len(present.running) + len(present.writing)
    ready[len(present.running) : written, GO_ON] = state.gone[list(present.writing)]
    length = np.repeat((back + rest)[:, None], KILL + 1, axis=1)
    fixed = np.repeat(np.where(is_saved, state.place[planned], ANYWHERE)[:, None], KILL + 1, axis=1)
    return _Choices(usable, np.full(shape, now), ready, length, fixed)


def _choose_for_running(
    machine: PlacedMachine, choices: _Choices, task: int, job: int, may_preempt: bool, now: float
) -> None:
    """What it is to let this job go on, to write its checkpoint, and to kill it."""
    state, seconds = machine.state, machine.jobs.seconds[job]
    end = _expected_end(machine, job, now)
    worked = max(now - state.works_from[job], 0.0)
    choices.usable[task, CHECKPOINT] = may_preempt and machine.rules.writes and worked > 0
    choices.usable[task, KILL] = may_preempt
    choices.release[task, GO_ON] = end
    choices.release[task, CHECKPOINT] = choices.ready[task, CHECKPOINT] = now + seconds
    choices.length[task, CHECKPOINT] = seconds + end - max(now, state.works_from[job])
    choices.fixed[task, CHECKPOINT] = state.place[job]
    choices.length[task, KILL] = max(choices.length[task, KILL], worked)


def _expected_end(machine: PlacedMachine, job: int, now: float) -> float:
    """At its limit at the latest, unless that has passed too."""
    jobs, begin, done = machine.jobs, machine.state.works_from[job], machine.state.done[job]
    end = machine.expected_end(begin, max(jobs.length[job] - done, 0.0), now)
    latest = begin + max(jobs.limit[job] - done, 0.0)
    return end if end <= latest else max(latest, machine.expected_end(latest, 0.0, now))


def _price(machine: PlacedMachine, job: int, now: float) -> float:
    """Of a running job (Algorithm 2); inf: it is too late already."""
    jobs, state, weights = machine.jobs, machine.state, machine.rules.weights
    limit, since = jobs.estimate[job], max(now - state.works_from[job], 0.0)
    worked = state.done[job] + since
    if max(1.0, running_slowdown(jobs.submit[job], limit, now, worked)) > jobs.victim_max[job]:
        return inf
    expected = expected_run(jobs.predicted[job], worked, limit)
    slowdown = max(1.0, running_slowdown(jobs.submit[job], expected, now, worked))
    return victim_cost(
        int(jobs.cpus[job]), slowdown, now - state.begin[job], max(0.0, expected - worked), expected,
        weights.slowdown, weights.checkpoint, weights.remaining,
    )  # fmt: skip
