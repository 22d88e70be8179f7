"""OMFS on a counter of CPUs, compiled: decides what ``planner_engine`` does with the daemon's own planner."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.engine.preemption_delay import preemption_seconds
from omfs_daemon.simulate.kernels.compiling import Records, kernel, part
from omfs_daemon.simulate.kernels.omfs.kernel_state import IN_VAIN, VICTIM, Groups, KernelState, Notes, Terms, Tree
from omfs_daemon.simulate.kernels.omfs.moves import (
    END,
    MATURES,
    STEP,
    arrive,
    end_job,
    free_area,
    free_cpus,
    interrupt,
    start_preemptors,
)
from omfs_daemon.simulate.kernels.omfs.scheduling_pass import decide

SegmentArrays = tuple[Ints, Floats, Floats, Ints]
Preemptions = tuple[Floats, Ints, Ints]


@kernel
def omfs_kernel(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState
) -> tuple[SegmentArrays, Preemptions]:
    """Run all jobs that are not rejected; what becomes of each is in ``jobs``. Returns the segments in which CPUs were
    held (job, begin, end, use) and the decided preemptions (when, victim, preemptor)."""
    notes = Notes([(0.0, 0, 0, 0)], [(0, 0.0, 0.0, 0)], [(0.0, 0, 0, 0)], [0])
    notes.due.clear()
    notes.segments.clear()
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
        has_changed = _process_due(jobs, tree, s, notes, now)
        while arrival < len(jobs) and jobs[arrival].submit <= now:
            if not jobs[arrival].rejected:
                arrive(jobs, tree, groups, s, arrival)
                has_changed = True
            arrival += 1
        start_preemptors(jobs, terms, s, notes, now)
        # That a job becomes preemptible matters only if the last pass lacked victims.
        is_undecided = has_changed or s.tally[IN_VAIN] > 0
        while is_undecided:
            is_undecided = decide(jobs, tree, terms, groups, s, notes, now) or _is_due(notes, now)
            _process_due(jobs, tree, s, notes, now)
            start_preemptors(jobs, terms, s, notes, now)
    return _segments(notes), _preemptions(notes)


@part
def _is_due(notes: Notes, now: float) -> bool:
    return len(notes.due) > 0 and notes.due[0][0] <= now


@part
def _process_due(jobs: Records, tree: Tree, s: KernelState, notes: Notes, now: float) -> bool:
    """Process due events; whether any was more than a job that becomes preemptible."""
    has_changed = False
    while _is_due(notes, now):
        _, what, job, turn = heappop(notes.due)
        if what == STEP:
            if turn == jobs[job].number:
                _advance_preemption(jobs, s, notes, job, now)
                has_changed = True
        elif turn == jobs[job].turn and what != MATURES:
            if what == END:
                end_job(jobs, tree, s, notes, job, now)
            else:
                free_area(jobs, s, job)
            has_changed = True
    return has_changed


@part
def _advance_preemption(jobs: Records, s: KernelState, notes: Notes, preemptor: int, now: float) -> None:
    """The signal reaches the victims, or the last of them is gone."""
    victims = np.empty(jobs[preemptor].left, dtype=np.int64)
    size, victim = 0, jobs[preemptor].first_victim
    while victim >= 0:
        if jobs[victim].state == VICTIM:
            victims[size] = victim
            size += 1
        victim = jobs[victim].next_victim
    if np.isnan(jobs[preemptor].signal):
        jobs[preemptor].signal = now
        for job in victims:
            interrupt(jobs, s, notes, job, now)
        gone = now + preemption_seconds(victims, jobs.preemption, jobs.queueing, jobs.pinned)
        heappush(notes.due, (gone, STEP, preemptor, jobs[preemptor].number))
        return
    for job in victims:
        free_cpus(jobs, s, notes, job, jobs[preemptor].signal, now)


@part
def _segments(notes: Notes) -> SegmentArrays:
    count = len(notes.segments)
    job, use = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    begin, until = np.empty(count), np.empty(count)
    for at in range(count):
        job[at], begin[at], until[at], use[at] = notes.segments[at]
    return job, begin, until, use


@part
def _preemptions(notes: Notes) -> Preemptions:
    count = len(notes.log)
    at_time, victim, preemptor = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for at in range(count):
        at_time[at], victim[at], preemptor[at], _ = notes.log[at]
    return at_time, victim, preemptor
