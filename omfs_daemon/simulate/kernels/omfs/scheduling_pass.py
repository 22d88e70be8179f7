"""One pass of the policy on a counter of CPUs: decides what ``policy/planner.py`` decides, in the same order.

On a counter a job that found no place in this pass finds none later in it, for what is idle only shrinks; so among
borrowers nothing has to be remembered, and the first job that is small enough is the next one.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.omfs.moves import begin
from omfs_daemon.simulate.kernels.omfs.moves import decide_stop
from omfs_daemon.simulate.kernels.omfs.moves import leave_queue
from omfs_daemon.simulate.kernels.omfs.job_queue import first_of_at_most
from omfs_daemon.simulate.kernels.omfs.kernel_state import AGAIN
from omfs_daemon.simulate.kernels.omfs.kernel_state import DECIDED
from omfs_daemon.simulate.kernels.omfs.kernel_state import HEADS
from omfs_daemon.simulate.kernels.omfs.kernel_state import IDLE
from omfs_daemon.simulate.kernels.omfs.kernel_state import IN_VAIN
from omfs_daemon.simulate.kernels.omfs.kernel_state import LEAVING
from omfs_daemon.simulate.kernels.omfs.kernel_state import MATURE
from omfs_daemon.simulate.kernels.omfs.kernel_state import NOW
from omfs_daemon.simulate.kernels.omfs.kernel_state import PASS
from omfs_daemon.simulate.kernels.omfs.kernel_state import POOL
from omfs_daemon.simulate.kernels.omfs.kernel_state import PROMISED
from omfs_daemon.simulate.kernels.omfs.kernel_state import RECLAIMS
from omfs_daemon.simulate.kernels.omfs.kernel_state import ROOM_MADE
from omfs_daemon.simulate.kernels.omfs.kernel_state import STOPS_LEFT
from omfs_daemon.simulate.kernels.omfs.kernel_state import THEN
from omfs_daemon.simulate.kernels.omfs.kernel_state import WAITING
from omfs_daemon.simulate.kernels.omfs.kernel_state import Groups
from omfs_daemon.simulate.kernels.omfs.kernel_state import Notes
from omfs_daemon.simulate.kernels.omfs.kernel_state import State
from omfs_daemon.simulate.kernels.omfs.kernel_state import Terms
from omfs_daemon.simulate.kernels.omfs.kernel_state import Tree
from omfs_daemon.simulate.kernels.omfs.kernel_state import path_of
from omfs_daemon.simulate.kernels.omfs.kernel_victims import choose
from omfs_daemon.simulate.kernels.omfs.kernel_victims import fill_pool
from omfs_daemon.simulate.workload.workload import Ints

ANY = np.iinfo(np.int64).max
NO_GROUP = -1


@part
def decide(jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, now: float) -> bool:
    """One pass; whether it decided anything."""
    if s.tally[WAITING] + s.tally[HEADS] == 0:
        return False
    books = _opened(tree, terms, s)
    _owners(jobs, tree, terms, groups, s, notes, books, s.area[0], s.tally[ROOM_MADE], now)
    if books[AGAIN] == 0 and books[NOW] > 0:
        _borrowers(jobs, tree, terms, groups, s, notes, books, now)
    return bool(books[DECIDED] > 0)


@part
def _opened(tree: Tree, terms: Terms, s: State) -> Ints:
    """The books of a new pass, as of the stops under way."""
    books = np.zeros(8, dtype=np.int64)
    books[THEN] = s.tally[IDLE] + s.tally[LEAVING] - s.tally[PROMISED]
    books[NOW] = min(s.tally[IDLE], books[THEN])
    books[STOPS_LEFT], books[POOL] = terms.stops_per_pass, -1
    s.tally[PASS] += 1
    s.tally[IN_VAIN] = 0
    s.pass_used[:] = s.used
    s.pass_fixed[:] = s.fixed
    s.in_vain[:] = ANY
    for leaf in tree.leaves:
        s.room[leaf] = laws.room(s.used, tree.entitled, path_of(tree, leaf))
    return books


# -- the order of the pass: one walk over those who may be owed something, one over those who may borrow ---
URGENTS, STOPPED_ONES, HELD_ONES, THE_LINE, NOBODY_LEFT = range(5)


@part
def _owners(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, books: Ints,
    area: float, room_made: int, now: float,
) -> None:  # fmt: skip
    """Urgent jobs; then those of accounts that use less than their entitlement: stopped ones first."""
    turns, stage, begin, most, reclaims = _turns(jobs, groups, groups.urgent, ANY), URGENTS, 0, 0, 0
    while books[AGAIN] == 0:
        job, group = -1, NO_GROUP
        if stage == STOPPED_ONES:
            if books[RECLAIMS] > reclaims:
                reclaims, most = books[RECLAIMS], _most_room(tree, s)
            job = first_of_at_most(s.heads, begin, most)
            begin = job + 1
            if job >= 0 and not jobs[job].pinned:
                group = jobs[job].group
                if jobs[job].cpus > s.room[jobs[job].leaf]:
                    continue
        elif len(turns) > 0:
            job, group = _next_of(jobs, groups, turns)
        if job < 0:
            stage += 1
            if stage == STOPPED_ONES:
                reclaims, most = books[RECLAIMS], _most_room(tree, s)
            elif stage == HELD_ONES:  # among owners, held ones stand at the head of the line
                _line_up_owners(jobs, tree, groups, s, turns)
            else:
                return
            continue
        behind = jobs[job].behind
        if not _may_go_on(jobs, tree, groups, s, job, group):
            continue
        is_made = _make_room(jobs, tree, terms, groups, s, notes, books, job, group, area, room_made, now)
        if is_made and stage != STOPPED_ONES:
            _queue_up(jobs, groups, turns, group, behind)


@part
def _line_up_owners(jobs: Records, tree: Tree, groups: Groups, s: State, turns: list[int]) -> None:
    """The first of each group; for most groups it is plain from the start that they are beyond."""
    for leaf in tree.leaves:
        if s.waiting_at[leaf] > 0:
            for at in range(groups.first[leaf], groups.first[leaf + 1]):
                group = groups.of_leaf[at]
                if groups.all[group].cpus > s.room[leaf]:
                    break
                _queue_up(jobs, groups, turns, group, groups.all[group].head)


@part
def _most_room(tree: Tree, s: State) -> int:
    """No leaf has room for more, neither now nor when the pass began."""
    most = 0
    for leaf in tree.leaves:
        most = max(most, s.room[leaf], laws.room(s.pass_used, tree.entitled, path_of(tree, leaf)))
    return most


@part
def _borrowers(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, books: Ints, now: float
) -> None:
    """What is idle is lent to anybody (OMFS, Algorithm 1, line 26): stopped jobs, held ones, all others."""
    turns, stage, begin = _turns(jobs, groups, groups.held, books[NOW]), STOPPED_ONES, 0
    while stage < NOBODY_LEFT:
        job, group = -1, NO_GROUP
        if stage == STOPPED_ONES:
            job = first_of_at_most(s.heads, begin, books[NOW])
        elif stage == THE_LINE:
            job = first_of_at_most(s.line, begin, books[NOW])
        elif len(turns) > 0:
            job, group = _next_of(jobs, groups, turns)
            if jobs[job].cpus > books[NOW] or not _admits(jobs, tree, s, job):
                continue
        if job < 0:
            stage, begin = stage + 1, 0
            continue
        begin, behind = job + 1, jobs[job].behind
        _start(jobs, tree, terms, groups, s, notes, books, job, now)
        if group >= 0:
            _queue_up(jobs, groups, turns, group, behind)


@part
def _turns(jobs: Records, groups: Groups, chosen: Ints, most: int) -> list[int]:
    """Whose turn it is: a heap of the first of each of these groups, if they have at most so many CPUs."""
    turns = [0]
    turns.clear()
    for group in chosen:
        if groups.all[group].cpus <= most:
            _queue_up(jobs, groups, turns, group, groups.all[group].head)
    return turns


@part
def _queue_up(jobs: Records, groups: Groups, turns: list[int], group: int, job: int) -> None:
    """The next one of a group, if there is one; held jobs go before the others."""
    if job >= 0:
        place = job if jobs[job].is_held else len(jobs) + job
        heappush(turns, place * len(groups.all) + group)


@part
def _next_of(jobs: Records, groups: Groups, turns: list[int]) -> tuple[int, int]:
    turn = heappop(turns)
    return turn // len(groups.all) % len(jobs), turn % len(groups.all)


# -- decisions ---
@part
def _admits(jobs: Records, tree: Tree, s: State, job: int) -> bool:
    return laws.admits_fixed(s.pass_fixed, tree.entitled, path_of(tree, jobs[job].leaf), jobs[job].cpus)


@part
def _may_go_on(jobs: Records, tree: Tree, groups: Groups, s: State, job: int, group: int) -> bool:
    """Whether the job is urgent or its account entitled to it, and nothing is known against its group."""
    if group >= 0 and (groups.all[group].beyond == s.tally[PASS] or groups.all[group].shut == s.tally[PASS]):
        return False
    if jobs[job].urgent:
        return True
    if jobs[job].cpus > laws.room(s.pass_used, tree.entitled, path_of(tree, jobs[job].leaf)):
        if group >= 0:
            groups.all[group].beyond = s.tally[PASS]
        return False
    return not jobs[job].is_held or _admits(jobs, tree, s, job)


@part
def _make_room(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, books: Ints,
    job: int, group: int, area: float, room_made: int, now: float,
) -> bool:  # fmt: skip
    """Start the job, promise it what is being freed, or stop others; False if none can be."""
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    if cpus <= books[NOW]:
        _start(jobs, tree, terms, groups, s, notes, books, job, now)
        return True
    if cpus <= books[THEN]:
        _promise(jobs, tree, s, books, job)
        return True
    if books[STOPS_LEFT] > 0:
        in_vain = s.in_vain[int(jobs[job].urgent)]
        if group < 0 or cpus < in_vain[path[0]]:
            if books[POOL] < 0:
                fill_pool(jobs, terms, s, notes, books, area, room_made, now)
            places = choose(jobs, tree, terms, s, books, job, now)
            if len(places) > 0 and (len(places) <= books[STOPS_LEFT] or books[RECLAIMS] == 0):
                _reclaim(jobs, tree, terms, groups, s, notes, books, job, places, now)
                return bool(books[AGAIN] == 0)
            if len(places) == 0:
                s.tally[IN_VAIN] = 1
                if group >= 0:
                    in_vain[path[0]] = cpus
        else:
            s.tally[IN_VAIN] = 1
    if group >= 0:
        groups.all[group].shut = s.tally[PASS]
    return False


@part
def _start(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, books: Ints, job: int, now: float
) -> None:
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    books[NOW] -= cpus
    books[THEN] -= cpus
    books[DECIDED] = 1
    laws.add(s.pass_used, path, cpus)
    laws.add(s.used, path, cpus)
    if jobs[job].is_held:
        laws.add(s.pass_fixed, path, cpus)
    leave_queue(jobs, tree, groups, s, job)
    begin(jobs, terms, s, notes, job, now)


@part
def _promise(jobs: Records, tree: Tree, s: State, books: Ints, job: int) -> None:
    """It will fit on what is being freed already; for this pass that counts."""
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    books[THEN] -= cpus
    books[NOW] = min(books[NOW], books[THEN])
    laws.add(s.pass_used, path, cpus)
    if jobs[job].is_held:
        laws.add(s.pass_fixed, path, cpus)


@part
def _reclaim(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: State, notes: Notes, books: Ints,
    job: int, places: Ints, now: float,
) -> None:  # fmt: skip
    """Stop the victims; if the swap area has no room for all of them, the rest of the pass is decided anew."""
    victims = s.pool[places]
    books[DECIDED] = 1
    if not _reserve(jobs, s, victims):
        books[AGAIN] = 1
        return
    for at in range(len(places)):
        victim = victims[at]
        s.gone[places[at]] = True
        if s.mature[places[at]]:
            books[MATURE] -= jobs[victim].cpus
        books[THEN] += jobs[victim].cpus
        laws.add(s.pass_used, path_of(tree, jobs[victim].leaf), -jobs[victim].cpus)
    _promise(jobs, tree, s, books, job)
    books[STOPS_LEFT] -= len(victims)
    books[RECLAIMS] += 1
    leave_queue(jobs, tree, groups, s, job)
    decide_stop(jobs, tree, terms, s, notes, job, victims, now)


@part
def _reserve(jobs: Records, s: State, victims: Ints) -> bool:
    """Swap area for all of them, or for none; those that are too many are spared until some is given back."""
    left, fits = s.area[0], True
    for victim in victims:
        if jobs[victim].size <= left:
            left -= jobs[victim].size
        else:
            jobs[victim].spared = s.tally[ROOM_MADE]
            fits = False
    if fits:
        s.area[0] = left
    return fits
