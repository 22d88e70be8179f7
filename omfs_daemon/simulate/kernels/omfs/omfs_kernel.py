"""OMFS on a counter of CPUs, compiled: what ``by_plan`` does with the daemon's own planner, decision by decision."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from omfs_daemon.simulate.engine import preemption_delay as set_costs
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.omfs.moves import END
from omfs_daemon.simulate.kernels.omfs.moves import STEP
from omfs_daemon.simulate.kernels.omfs.moves import WAKE
from omfs_daemon.simulate.kernels.omfs.moves import arrive
from omfs_daemon.simulate.kernels.omfs.moves import break_off
from omfs_daemon.simulate.kernels.omfs.moves import end
from omfs_daemon.simulate.kernels.omfs.moves import give_area_back
from omfs_daemon.simulate.kernels.omfs.moves import settle
from omfs_daemon.simulate.kernels.omfs.moves import vanish
from omfs_daemon.simulate.kernels.omfs.scheduling_pass import decide
from omfs_daemon.simulate.kernels.omfs.kernel_state import IN_VAIN
from omfs_daemon.simulate.kernels.omfs.kernel_state import VICTIM
from omfs_daemon.simulate.kernels.omfs.kernel_state import Groups
from omfs_daemon.simulate.kernels.omfs.kernel_state import Notes
from omfs_daemon.simulate.kernels.omfs.kernel_state import State
from omfs_daemon.simulate.kernels.omfs.kernel_state import Terms
from omfs_daemon.simulate.kernels.omfs.kernel_state import Tree
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints

Stretches = tuple[Ints, Floats, Floats, Ints]
Stops = tuple[Floats, Ints, Ints]


@kernel
def omfs(jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State) -> tuple[Stretches, Stops]:
    """Run all jobs that are not rejected; what becomes of each is in ``jobs``. Returns the stretches in which CPUs were
    held (job, begin, end, use) and the stops that were decided (when, victim, beneficiary)."""
    notes = Notes([(0.0, 0, 0, 0)], [(0, 0.0, 0.0, 0)], [(0.0, 0, 0, 0)], [0])
    notes.due.clear()
    notes.stretches.clear()
    notes.log.clear()
    notes.ready.clear()
    arrival = 0
    while True:
        while arrival < len(jobs) and jobs[arrival].rejected:
            arrival += 1
        now = jobs[arrival].submit if arrival < len(jobs) else np.inf
        if len(notes.due) > 0:
            now = min(now, notes.due[0][0])
        if now == np.inf:
            break
        is_news = _happen(jobs, tree, s, notes, now)
        while arrival < len(jobs) and jobs[arrival].submit <= now:
            if not jobs[arrival].rejected:
                arrive(jobs, tree, groups, s, arrival)
                is_news = True
            arrival += 1
        settle(jobs, terms, s, notes, now)
        # That a job may be stopped from now on matters only if the last pass lacked jobs to stop.
        is_open = is_news or s.tally[IN_VAIN] > 0
        while is_open:
            is_open = decide(jobs, tree, terms, groups, s, notes, now) or _is_due(notes, now)
            _happen(jobs, tree, s, notes, now)
            settle(jobs, terms, s, notes, now)
    return _stretches(notes), _stops(notes)


@part
def _is_due(notes: Notes, now: float) -> bool:
    return len(notes.due) > 0 and notes.due[0][0] <= now


@part
def _happen(jobs: Records, tree: Tree, s: State, notes: Notes, now: float) -> bool:
    """What comes due by itself; whether it is more than that a job may be stopped from now on."""
    is_news = False
    while _is_due(notes, now):
        _, what, job, turn = heappop(notes.due)
        if what == STEP:
            if turn == jobs[job].number:
                _go_on(jobs, s, notes, job, now)
                is_news = True
        elif turn == jobs[job].turn and what != WAKE:
            if what == END:
                end(jobs, tree, s, notes, job, now)
            else:
                give_area_back(jobs, s, job)
            is_news = True
    return is_news


@part
def _go_on(jobs: Records, s: State, notes: Notes, beneficiary: int, now: float) -> None:
    """The signal reaches the victims, or the last of them is gone."""
    victims = np.empty(jobs[beneficiary].left, dtype=np.int64)
    size, victim = 0, jobs[beneficiary].first_victim
    while victim >= 0:
        if jobs[victim].state == VICTIM:
            victims[size] = victim
            size += 1
        victim = jobs[victim].next_victim
    if np.isnan(jobs[beneficiary].signal):
        jobs[beneficiary].signal = now
        for job in victims:
            break_off(jobs, s, notes, job, now)
        gone = now + set_costs.set_seconds(victims, jobs.stop, jobs.queueing, jobs.pinned)
        heappush(notes.due, (gone, STEP, beneficiary, jobs[beneficiary].number))
        return
    for job in victims:
        vanish(jobs, s, notes, job, jobs[beneficiary].signal, now)


@part
def _stretches(notes: Notes) -> Stretches:
    count = len(notes.stretches)
    job, use = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    begin, until = np.empty(count), np.empty(count)
    for at in range(count):
        job[at], begin[at], until[at], use[at] = notes.stretches[at]
    return job, begin, until, use


@part
def _stops(notes: Notes) -> Stops:
    count = len(notes.log)
    at_time, victim, beneficiary = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for at in range(count):
        at_time[at], victim[at], beneficiary[at], _ = notes.log[at]
    return at_time, victim, beneficiary
