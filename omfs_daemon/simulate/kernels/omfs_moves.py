"""What happens to a job: it joins the queue, starts, is stopped, ends. Keeps all books but those of a pass."""

from __future__ import annotations

from heapq import heappush

import numpy as np
from numba import njit

from omfs_daemon.policy import laws
from omfs_daemon.simulate.kernels.omfs_queue import NOBODY, join, leave, put
from omfs_daemon.simulate.kernels.omfs_state import (
    DONE,
    GONE,
    HEADS,
    IDLE,
    IN_LINE,
    IN_TRANSIT,
    LAST,
    LEAVING,
    NUMBER,
    PASS,
    PROMISED,
    ROOM_MADE,
    RUNS,
    STOPPED,
    URGENT,
    VICTIM,
    WAITING,
    Cast,
    Groups,
    Notes,
    State,
    Terms,
    Tree,
    path_of,
)
from omfs_daemon.simulate.outcome import Use
from omfs_daemon.simulate.workload import Ints

END, STEP, BACK, WAKE = range(4)
"""What comes due, in the order in which it is done: a job ends; a stop comes to its next step; a job that is brought
back computes again; a job may be stopped from now on."""

WORK, LOST, STOP, RESUME = int(Use.WORK), int(Use.LOST), int(Use.STOP), int(Use.RESUME)


@njit(cache=True)
def group_of(cast: Cast, s: State, job: int) -> int:
    """The group in which it waits in line."""
    return cast.held_group[job] if s.is_held[job] else cast.group[job]


@njit(cache=True)
def arrive(cast: Cast, tree: Tree, groups: Groups, s: State, job: int) -> None:
    """It joins the line; one that is never stopped counts at once if it fits, or else is held (policy/gating.py)."""
    leaf = cast.leaf[job]
    s.state[job] = IN_LINE
    s.count[WAITING] += 1
    if cast.urgent[job]:
        s.count[URGENT] += 1
    else:
        s.waiting_at[leaf] += 1
    if cast.fixed[job]:
        if laws.admits_fixed(s.fixed, tree.entitled, path_of(tree, leaf), cast.cpus[job]):
            laws.add(s.fixed, path_of(tree, leaf), cast.cpus[job])
        else:
            s.is_held[job] = True
    if not cast.urgent[job] and not s.is_held[job]:
        put(s.line, job, cast.cpus[job])
    join(groups, s, group_of(cast, s, job), job)


@njit(cache=True)
def leave_queue(cast: Cast, tree: Tree, groups: Groups, s: State, job: int) -> None:
    """It starts, or others are being stopped for it."""
    if s.state[job] == STOPPED:
        put(s.heads, job, NOBODY)
        s.count[HEADS] -= 1
        return
    s.count[WAITING] -= 1
    if cast.urgent[job]:
        s.count[URGENT] -= 1
    else:
        s.waiting_at[cast.leaf[job]] -= 1
        if s.is_held[job]:
            laws.add(s.fixed, path_of(tree, cast.leaf[job]), cast.cpus[job])
        else:
            put(s.line, job, NOBODY)
    leave(groups, s, group_of(cast, s, job), job)


@njit(cache=True)
def begin(cast: Cast, terms: Terms, s: State, notes: Notes, job: int, now: float) -> None:
    """It starts or runs on; CPUs are counted by who calls."""
    is_back = s.last_stop[job] >= 0
    if not is_back:
        s.start[job] = now
    s.count[IDLE] -= cast.cpus[job]
    s.runs_since[job] = now
    s.works_from[job] = now + cast.resume[job] if is_back and cast.keeps[job] else now
    s.turn[job] += 1
    s.state[job] = RUNS
    s.started_in[job] = s.count[PASS]
    turn = s.turn[job]
    if not (is_back and cast.pinned[job]):
        s.since[job] = now
        _line_up(s, job)
    heappush(notes.due, (s.works_from[job] + max(0.0, cast.run[job] - s.done[job]), END, job, turn))
    if is_back and cast.pinned[job]:
        if s.works_from[job] > now:
            heappush(notes.due, (s.works_from[job], BACK, job, turn))
        else:
            give_area_back(cast, s, job)
    if cast.stoppable[job]:
        _wake(terms, s, notes, job, now)


@njit(cache=True)
def _wake(terms: Terms, s: State, notes: Notes, job: int, now: float) -> None:
    """Look again when it has run for its quantum, and when it has a stop left in the hour again."""
    mature = laws.matures_at(now, terms.quantum)
    if now < mature < np.inf:
        heappush(notes.due, (mature, WAKE, job, s.turn[job]))
    entry, counted = s.last_stop[job], 1
    while entry >= 0 and counted < terms.stops_per_hour:
        entry = notes.log[entry][3]
        counted += 1
    if entry >= 0 and terms.stops_per_hour > 0:
        allowed = laws.matures_at(notes.log[entry][0], laws.HOUR)
        if allowed > now:
            heappush(notes.due, (allowed, WAKE, job, s.turn[job]))


@njit(cache=True)
def end(cast: Cast, tree: Tree, s: State, notes: Notes, job: int, now: float) -> None:
    """It is done; also one that is about to be stopped, if it is before the signal comes."""
    cpus = cast.cpus[job]
    s.count[IDLE] += cpus
    if s.state[job] == VICTIM:
        s.count[LEAVING] -= cpus
        give_area_back(cast, s, job)
        one_less(s, notes, s.beneficiary[job])
    else:
        laws.add(s.used, path_of(tree, cast.leaf[job]), -cpus)
    if cast.fixed[job]:
        laws.add(s.fixed, path_of(tree, cast.leaf[job]), -cpus)
    s.state[job] = DONE
    s.finish[job] = now
    s.turn[job] += 1
    _step_out(s, job)
    note(notes, job, s.runs_since[job], s.works_from[job], RESUME)
    note(notes, job, s.works_from[job], now, WORK)


@njit(cache=True)
def decide_stop(
    cast: Cast, tree: Tree, terms: Terms, s: State, notes: Notes, job: int, victims: Ints, now: float
) -> None:
    """These will be stopped for this job, which counts as running from now on."""
    s.state[job] = IN_TRANSIT
    s.count[PROMISED] += cast.cpus[job]
    laws.add(s.used, path_of(tree, cast.leaf[job]), cast.cpus[job])
    s.number[job] = s.count[NUMBER]
    s.count[NUMBER] += 1
    s.signal[job] = np.nan
    s.left[job] = len(victims)
    s.first_victim[job] = -1
    for at in range(len(victims) - 1, -1, -1):
        s.next_victim[victims[at]] = s.first_victim[job]
        s.first_victim[job] = victims[at]
    for victim in victims:
        s.state[victim] = VICTIM
        s.beneficiary[victim] = job
        s.count[LEAVING] += cast.cpus[victim]
        laws.add(s.used, path_of(tree, cast.leaf[victim]), -cast.cpus[victim])
        notes.log.append((now, victim, job, s.last_stop[victim]))
        s.last_stop[victim] = len(notes.log) - 1
    heappush(notes.due, (now + terms.latency, STEP, job, s.number[job]))


@njit(cache=True)
def break_off(cast: Cast, s: State, notes: Notes, job: int, now: float) -> None:
    """The signal reaches a victim: it computes no more."""
    if s.works_from[job] > now:
        give_area_back(cast, s, job)
    worked = s.done[job] + max(0.0, now - s.works_from[job])
    note(notes, job, s.runs_since[job], min(now, s.works_from[job]), RESUME)
    note(notes, job, s.works_from[job], now, WORK if cast.keeps[job] else LOST)
    s.done[job] = worked if cast.keeps[job] else 0.0
    s.works_from[job] = np.inf
    s.turn[job] += 1
    s.stops[job] += 1


@njit(cache=True)
def vanish(cast: Cast, s: State, notes: Notes, job: int, signal: float, now: float) -> None:
    """A victim holds its CPUs no longer."""
    note(notes, job, signal, now, STOP)
    s.count[IDLE] += cast.cpus[job]
    s.count[LEAVING] -= cast.cpus[job]
    s.state[job] = GONE
    if not cast.pinned[job]:
        _step_out(s, job)
    one_less(s, notes, s.beneficiary[job])


@njit(cache=True)
def one_less(s: State, notes: Notes, beneficiary: int) -> None:
    """The last of its victims makes the beneficiary ready: those that were decided first come first."""
    s.left[beneficiary] -= 1
    if s.left[beneficiary] > 0:
        return
    notes.ready.append(beneficiary)
    at = len(notes.ready) - 1
    while at > 0 and s.number[notes.ready[at - 1]] > s.number[beneficiary]:
        notes.ready[at] = notes.ready[at - 1]
        at -= 1
    notes.ready[at] = beneficiary


@njit(cache=True)
def settle(cast: Cast, terms: Terms, s: State, notes: Notes, now: float) -> None:
    """Beneficiaries start whose victims are gone and whose CPUs are idle; then the victims wait as stopped jobs."""
    kept = 0
    for at in range(len(notes.ready)):
        job = notes.ready[at]
        if cast.cpus[job] > s.count[IDLE]:
            notes.ready[kept] = job
            kept += 1
            continue
        s.count[PROMISED] -= cast.cpus[job]
        s.number[job] = -1
        begin(cast, terms, s, notes, job, now)
        victim = s.first_victim[job]
        while victim >= 0:
            if s.state[victim] == GONE:
                s.state[victim] = STOPPED
                put(s.heads, victim, cast.cpus[victim])
                s.count[HEADS] += 1
            victim = s.next_victim[victim]
    while len(notes.ready) > kept:
        notes.ready.pop()


@njit(cache=True)
def give_area_back(cast: Cast, s: State, job: int) -> None:
    if cast.size[job] > 0:
        s.area[0] += cast.size[job]
        s.count[ROOM_MADE] += 1


@njit(cache=True)
def note(notes: Notes, job: int, since: float, until: float, use: int) -> None:
    if until > since:
        notes.stretches.append((job, since, until, use))


@njit(cache=True)
def _line_up(s: State, job: int) -> None:
    """Among the running jobs, by start and then by id; suspended ones keep their places."""
    later, earlier = -1, s.count[LAST]
    while earlier >= 0 and (s.since[earlier], earlier) > (s.since[job], job):
        later, earlier = earlier, s.earlier[earlier]
    s.earlier[job], s.later[job] = earlier, later
    if earlier >= 0:
        s.later[earlier] = job
    if later >= 0:
        s.earlier[later] = job
    else:
        s.count[LAST] = job


@njit(cache=True)
def _step_out(s: State, job: int) -> None:
    earlier, later = s.earlier[job], s.later[job]
    if earlier >= 0:
        s.later[earlier] = later
    if later >= 0:
        s.earlier[later] = earlier
    else:
        s.count[LAST] = earlier
