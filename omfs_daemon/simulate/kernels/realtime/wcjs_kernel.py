"""WCJS: real-time jobs wait like others until their slowdown is in danger, then take the cheapest running jobs
(Nickolay et al. 2021, section 6); and its baselines, which stop nobody (sections 4.1 and 7.1.5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.rules.slowdown_laws import waiting_slowdown
from omfs_daemon.simulate.engine.places import PlaceArrays
from omfs_daemon.simulate.kernels.compiling import Record, Records, kernel, part
from omfs_daemon.simulate.kernels.realtime.cheapest_place import Weights, cheapest_jobs, cheapest_place
from omfs_daemon.simulate.kernels.realtime.place_state import (
    DUE,
    NOBODY,
    NOWHERE,
    RUNNING,
    UNSEEN,
    WAITING,
    PlaceState,
    Stays,
    begin_stay,
    claim_place,
    end_last_stay,
    free_place,
    is_flat,
    new_place_state,
    new_stays,
    release_victims,
    stop_for,
    with_stays,
)
from omfs_daemon.simulate.kernels.realtime.wfp_queue import (
    ScoredJobs,
    await_start,
    leave_waiting,
    nobody_waits,
    serve_by_score,
)
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, RunHistory, learn_run, predicted
from omfs_daemon.simulate.kernels.running import correct_expected, first_end, pop_end, put_off_within

ALIKE, FIRST, CHEAPEST, CHEAPEST_BLOCKING = range(4)
"""What real-time jobs are: like all others; served before them, without stopping anybody; served before them once they
are due, by stopping the cheapest jobs; and the others wait while one is due."""


class Serving(NamedTuple):
    """cpus    of the machine
    order   what real-time jobs are, as above
    writes  whether a stopped job writes a checkpoint
    learns  whether estimates are learned; what is learned says what victims cost in any case
    """

    cpus: int
    order: int
    writes: bool
    weights: Weights
    learns: bool


class Queues(NamedTuple):
    """``due``: real-time jobs that are served first, ``tally``: how many; ``costs`` .. ``marked``: room to work in, one
    entry a job, but ``marked`` one a unit."""

    regular: ScoredJobs
    realtime: ScoredJobs
    due: Ints
    tally: Ints
    costs: Floats
    seen: Ints
    victims: Ints
    marked: Ints


@kernel
def wcjs_kernel(jobs: Records, crossings: Ints, places: PlaceArrays, serving: Serving, history: RunHistory) -> Records:
    """Start, finish (nan for jobs that fit no place) and stops are written to ``jobs``, records of ``JOB``, in order of
    submission; returns all stays, records of ``STAY``, in order of their begin.

    crossings  the real-time jobs that will be due, in order of ``act_at``
    """
    count = len(jobs)
    state, stays = new_place_state(jobs, places, serving.cpus), new_stays(count + 16)
    queues = Queues(
        nobody_waits(count),
        nobody_waits(count if serving.order == FIRST else 0),
        np.empty(count, np.int64),
        np.zeros(1, np.int64),
        np.empty(count),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.zeros(len(state.owner), np.int64),
    )
    arrived = crossed = 0
    while True:
        _drop_void_ends(state)
        now = min(first_end(state.ends), first_end(state.releases))
        if arrived < count:
            now = min(now, jobs[arrived].submit)
        while crossed < len(crossings) and not _may_become_due(jobs, crossings[crossed]):
            crossed += 1
        if crossed < len(crossings):
            now = min(now, jobs[crossings[crossed]].act_at)
        if now == np.inf:
            return stays.all[: stays.size[0]]
        _end_jobs(state, stays, history, now)
        stays = with_stays(stays, 2 * count if arrived == 0 else state.releases.size[0])
        _release(state, stays, queues, serving, now)
        while arrived < count and jobs[arrived].submit <= now:
            if jobs[arrived].fits:
                _predict(jobs[arrived], arrived, serving, history)
                _await(state, queues, arrived, serving.order)
            arrived += 1
        while crossed < len(crossings) and jobs[crossings[crossed]].act_at <= now:
            _become_due(state, queues, crossings[crossed])
            crossed += 1
        correct_expected(state.expected, state.expected_end, state.begin, state.span, state.longest, now)
        stays = with_stays(stays, 2 * queues.tally[0] + queues.regular.size[0] + queues.realtime.size[0])
        _serve(state, stays, queues, serving, now)


@part
def _may_become_due(jobs: Records, job: int) -> bool:
    return bool(jobs[job].state == UNSEEN or jobs[job].state == WAITING)


@part
def _drop_void_ends(state: PlaceState) -> None:
    """Up to the first end that is not void: nothing happens when a stay would have ended that was cut short, so there
    is no scheduling pass either."""
    while state.ends.size[0] > 0:
        record = state.jobs[state.ends.job[0]]
        if record.state == RUNNING and record.ends == state.ends.time[0]:
            return
        pop_end(state.ends)


@part
def _end_jobs(state: PlaceState, stays: Stays, history: RunHistory, now: float) -> None:
    """Jobs that are done go."""
    while first_end(state.ends) <= now:
        job = pop_end(state.ends)
        end_last_stay(state, stays, job, now)
        learn_run(history, job, state.jobs[job].run)
        _drop_void_ends(state)


@part
def _release(state: PlaceState, stays: Stays, queues: Queues, serving: Serving, now: float) -> None:
    """Real-time jobs begin for which the last one is gone; those that were stopped wait again."""
    while first_end(state.releases) <= now:
        job = pop_end(state.releases)
        victim = state.jobs[job].first_victim
        while victim != NOBODY:
            record = state.jobs[victim]
            if serving.learns:
                record.estimate = put_off_within(record.estimate, record.at_most, record.done)
            await_start(queues.regular, state, victim)
            victim = state.jobs[victim].next_victim
        release_victims(state, stays, job, now)


@part
def _predict(record: Record, job: int, serving: Serving, history: RunHistory) -> None:
    """Of a job that comes."""
    if history.rule != NOT_LEARNED:
        record.predicted = predicted(history, job)
        if serving.learns:
            record.estimate = record.predicted


@part
def _await(state: PlaceState, queues: Queues, job: int, order: int) -> None:
    state.jobs[job].state = WAITING
    await_start(queues.realtime if order == FIRST and state.jobs[job].realtime else queues.regular, state, job)


@part
def _become_due(state: PlaceState, queues: Queues, job: int) -> None:
    if state.jobs[job].state != WAITING:
        return
    for at in range(queues.regular.size[0]):
        if queues.regular.job[at] == job:
            leave_waiting(queues.regular, at)
            break
    state.jobs[job].state = DUE
    queues.due[queues.tally[0]] = job
    queues.tally[0] += 1


@part
def _serve(state: PlaceState, stays: Stays, queues: Queues, serving: Serving, now: float) -> None:
    """One scheduling pass."""
    if queues.tally[0] > 0:
        _serve_due(state, stays, queues, serving, now)
        if queues.tally[0] > 0 and serving.order == CHEAPEST_BLOCKING:
            return
    if serving.order == FIRST:
        serve_by_score(state, stays, queues.realtime, queues.marked, now, serving.cpus)
        if queues.realtime.size[0] > 0:
            return
    serve_by_score(state, stays, queues.regular, queues.marked, now, serving.cpus)


@part
def _serve_due(state: PlaceState, stays: Stays, queues: Queues, serving: Serving, now: float) -> None:
    """The jobs that are due, the one with the greatest slowdown first; one that finds
    neither a free place nor one to be freed waits, and holds up nobody."""
    due, size = queues.due, queues.tally[0]
    slowdowns = np.empty(size)
    for at in range(size):
        record = state.jobs[due[at]]
        slowdowns[at] = -waiting_slowdown(record.submit, record.limit, now)
    due[:size] = due[:size][np.argsort(slowdowns, kind="mergesort")]
    left = 0
    for at in range(size):
        job = due[at]
        if not _serve_one(state, stays, queues, serving, job, now):
            due[left] = job
            left += 1
    queues.tally[0] = left


@part
def _serve_one(state: PlaceState, stays: Stays, queues: Queues, serving: Serving, job: int, now: float) -> bool:
    place = free_place(state, job, False, queues.marked)
    if place != NOWHERE:
        begin_stay(state, stays, job, place, now)
        return True
    if is_flat(state):
        place = 0
        count = cheapest_jobs(state, job, now, serving.weights, queues.costs, queues.victims)
    else:
        place, count = cheapest_place(state, job, now, serving.weights, queues.costs, queues.seen, queues.victims)
    if count == 0:
        return False
    for at in range(count):
        victim = queues.victims[at]
        stop_for(state, stays, victim, job, now, serving.writes, queues.costs[victim])
    if claim_place(state, stays, job, place, now) <= now:
        _release(state, stays, queues, serving, now)
    return True
