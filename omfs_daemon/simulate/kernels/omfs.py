"""OMFS on a counter of CPUs, compiled: what ``by_plan`` does with the daemon's own planner, decision by decision."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numba import njit

from omfs_daemon.simulate import set_costs
from omfs_daemon.simulate.kernels.omfs_moves import (
    BACK,
    END,
    STEP,
    arrive,
    break_off,
    end,
    give_area_back,
    settle,
    vanish,
)
from omfs_daemon.simulate.kernels.omfs_pass import decide
from omfs_daemon.simulate.kernels.omfs_state import (
    HEADS,
    VICTIM,
    WAITING,
    Cast,
    Groups,
    Notes,
    State,
    Terms,
    Tree,
)
from omfs_daemon.simulate.workload import Bools, Floats, Ints

Stretches = tuple[Ints, Floats, Floats, Ints]
Stops = tuple[Floats, Ints, Ints]


@njit(cache=True)
def omfs(
    cast: Cast, tree: Tree, terms: Terms, groups: Groups, s: State, rejected: Bools
) -> tuple[Stretches, Stops]:
    """Run all jobs that are not rejected; what becomes of each is in ``s``. Returns the stretches in which CPUs were
    held (job, begin, end, use) and the stops that were decided (when, victim, beneficiary)."""
    notes = Notes([(0.0, 0, 0, 0)], [(0, 0.0, 0.0, 0)], [(0.0, 0, 0, 0)], [0])
    notes.due.clear()
    notes.stretches.clear()
    notes.log.clear()
    notes.ready.clear()
    arrival = 0
    while True:
        while arrival < len(rejected) and rejected[arrival]:
            arrival += 1
        now = cast.submit[arrival] if arrival < len(rejected) else np.inf
        if len(notes.due) > 0:
            now = min(now, notes.due[0][0])
        if now == np.inf:
            break
        _happen(cast, tree, terms, s, notes, now)
        while arrival < len(rejected) and cast.submit[arrival] <= now:
            if not rejected[arrival]:
                arrive(cast, tree, groups, s, arrival)
            arrival += 1
        settle(cast, terms, s, notes, now)
        while _decide(cast, tree, terms, groups, s, notes, now) or _is_due(notes, now):
            _happen(cast, tree, terms, s, notes, now)
            settle(cast, terms, s, notes, now)
    return _stretches(notes), _stops(notes)


@njit(cache=True)
def _is_due(notes: Notes, now: float) -> bool:
    return len(notes.due) > 0 and notes.due[0][0] <= now


@njit(cache=True)
def _decide(cast: Cast, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, now: float) -> bool:
    if s.count[WAITING] + s.count[HEADS] == 0:
        return False
    return decide(cast, tree, terms, groups, s, notes, now)


@njit(cache=True)
def _happen(cast: Cast, tree: Tree, terms: Terms, s: State, notes: Notes, now: float) -> None:
    """What comes due by itself."""
    while _is_due(notes, now):
        _, what, job, turn = heappop(notes.due)
        if what == STEP:
            if turn == s.number[job]:
                _go_on(cast, s, notes, job, now)
        elif turn == s.turn[job]:
            if what == END:
                end(cast, tree, s, notes, job, now)
            elif what == BACK:
                give_area_back(cast, s, job)


@njit(cache=True)
def _go_on(cast: Cast, s: State, notes: Notes, beneficiary: int, now: float) -> None:
    """The signal reaches the victims, or the last of them is gone."""
    victims = np.empty(s.left[beneficiary], dtype=np.int64)
    size, victim = 0, s.first_victim[beneficiary]
    while victim >= 0:
        if s.state[victim] == VICTIM:
            victims[size] = victim
            size += 1
        victim = s.next_victim[victim]
    if np.isnan(s.signal[beneficiary]):
        s.signal[beneficiary] = now
        for job in victims:
            break_off(cast, s, notes, job, now)
        gone = now + set_costs.set_seconds(victims, cast.stop, cast.queueing, cast.pinned)
        heappush(notes.due, (gone, STEP, beneficiary, s.number[beneficiary]))
        return
    for job in victims:
        vanish(cast, s, notes, job, s.signal[beneficiary], now)


@njit(cache=True)
def _stretches(notes: Notes) -> Stretches:
    count = len(notes.stretches)
    job, use = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    begin, until = np.empty(count), np.empty(count)
    for at in range(count):
        job[at], begin[at], until[at], use[at] = notes.stretches[at]
    return job, begin, until, use


@njit(cache=True)
def _stops(notes: Notes) -> Stops:
    count = len(notes.log)
    at_time, victim, beneficiary = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for at in range(count):
        at_time[at], victim[at], beneficiary[at], _ = notes.log[at]
    return at_time, victim, beneficiary
