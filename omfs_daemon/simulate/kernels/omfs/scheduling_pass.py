"""One pass of the policy on a counter of CPUs: decides what ``policy/planner.py`` decides, in the same order.

On a counter a job that found no place in this pass finds none later in it, for what is idle only shrinks; so among
borrowers nothing has to be remembered, and the first job that is small enough is the next one.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.omfs.job_queue import first_of_at_most
from omfs_daemon.simulate.kernels.omfs.kernel_state import (
    AGAIN,
    AREA_FREED,
    CANDIDATES,
    DECIDED,
    IDLE,
    IN_VAIN,
    LEAVING,
    MATURE,
    NOW,
    PASS,
    PREEMPTED_COUNT,
    PREEMPTIONS_LEFT,
    PROMISED,
    QUEUED_COUNT,
    RECLAIMS,
    THEN,
    Groups,
    KernelState,
    Notes,
    Terms,
    Tree,
    path_of,
)
from omfs_daemon.simulate.kernels.omfs.kernel_victims import choose_places, fill_candidates
from omfs_daemon.simulate.kernels.omfs.moves import begin, decide_preemption, leave_queue

ANY = np.iinfo(np.int64).max
NO_GROUP = -1


@part
def decide(jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState, notes: Notes, now: float) -> bool:
    """One pass; whether it decided anything."""
    if s.tally[QUEUED_COUNT] + s.tally[PREEMPTED_COUNT] == 0:
        return False
    pass_tally = _opened(tree, terms, s)
    _owners(jobs, tree, terms, groups, s, notes, pass_tally, s.area[0], s.tally[AREA_FREED], now)
    if pass_tally[AGAIN] == 0 and pass_tally[NOW] > 0:
        _borrowers(jobs, tree, terms, groups, s, notes, pass_tally, now)
    return bool(pass_tally[DECIDED] > 0)


@part
def _opened(tree: Tree, terms: Terms, s: KernelState) -> Ints:
    """The tally of a new pass, given the preemptions under way."""
    pass_tally = np.zeros(8, dtype=np.int64)
    pass_tally[THEN] = s.tally[IDLE] + s.tally[LEAVING] - s.tally[PROMISED]
    pass_tally[NOW] = min(s.tally[IDLE], pass_tally[THEN])
    pass_tally[PREEMPTIONS_LEFT], pass_tally[CANDIDATES] = terms.preemptions_per_pass, -1
    s.tally[PASS] += 1
    s.tally[IN_VAIN] = 0
    s.pass_used[:] = s.used
    s.pass_non_preemptible[:] = s.non_preemptible
    s.in_vain[:] = ANY
    for leaf in tree.leaves:
        s.room[leaf] = laws.room(s.used, tree.entitled, path_of(tree, leaf))
    return pass_tally


# -- the order of the pass: one walk over those who may be owed something, one over those who may borrow ---
URGENT_JOBS, PREEMPTED_JOBS, HELD_JOBS, QUEUED_JOBS, NO_MORE = range(5)


@part
def _owners(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState, notes: Notes, pass_tally: Ints,
    area: float, area_freed: int, now: float,
) -> None:  # fmt: skip
    """Urgent jobs; then those of accounts that use less than their entitlement: preempted ones first."""
    turns, stage, begin, most, preemptions = _turns(jobs, groups, groups.urgent, ANY), URGENT_JOBS, 0, 0, 0
    while pass_tally[AGAIN] == 0:
        job, group = -1, NO_GROUP
        if stage == PREEMPTED_JOBS:
            if pass_tally[RECLAIMS] > preemptions:
                preemptions, most = pass_tally[RECLAIMS], _most_room(tree, s)
            job = first_of_at_most(s.preempted, begin, most)
            begin = job + 1
            if job >= 0 and not jobs[job].pinned:
                group = jobs[job].group
                if jobs[job].cpus > s.room[jobs[job].leaf]:
                    continue
        elif len(turns) > 0:
            job, group = _next_of(jobs, groups, turns)
        if job < 0:
            stage += 1
            if stage == PREEMPTED_JOBS:
                preemptions, most = pass_tally[RECLAIMS], _most_room(tree, s)
            elif stage == HELD_JOBS:  # among owners, held ones come first
                _queue_owners(jobs, tree, groups, s, turns)
            else:
                return
            continue
        behind = jobs[job].behind
        if not _may_go_on(jobs, tree, groups, s, job, group):
            continue
        is_made = _make_room(jobs, tree, terms, groups, s, notes, pass_tally, job, group, area, area_freed, now)
        if is_made and stage != PREEMPTED_JOBS:
            _push_turn(jobs, groups, turns, group, behind)


@part
def _queue_owners(jobs: Records, tree: Tree, groups: Groups, s: KernelState, turns: list[int]) -> None:
    """The first of each group; for most groups it is plain from the start that they are beyond."""
    for leaf in tree.leaves:
        if s.waiting_at[leaf] > 0:
            for at in range(groups.first[leaf], groups.first[leaf + 1]):
                group = groups.of_leaf[at]
                if groups.all[group].cpus > s.room[leaf]:
                    break
                _push_turn(jobs, groups, turns, group, groups.all[group].head)


@part
def _most_room(tree: Tree, s: KernelState) -> int:
    """No leaf has room for more, neither now nor when the pass began."""
    most = 0
    for leaf in tree.leaves:
        most = max(most, s.room[leaf], laws.room(s.pass_used, tree.entitled, path_of(tree, leaf)))
    return most


@part
def _borrowers(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState, notes: Notes, pass_tally: Ints, now: float
) -> None:
    """What is idle is lent to anybody (OMFS, Algorithm 1, line 26): preempted jobs, held ones, all others."""
    turns, stage, begin = _turns(jobs, groups, groups.held, pass_tally[NOW]), PREEMPTED_JOBS, 0
    while stage < NO_MORE:
        job, group = -1, NO_GROUP
        if stage == PREEMPTED_JOBS:
            job = first_of_at_most(s.preempted, begin, pass_tally[NOW])
        elif stage == QUEUED_JOBS:
            job = first_of_at_most(s.queued, begin, pass_tally[NOW])
        elif len(turns) > 0:
            job, group = _next_of(jobs, groups, turns)
            if jobs[job].cpus > pass_tally[NOW] or not _admits(jobs, tree, s, job):
                continue
        if job < 0:
            stage, begin = stage + 1, 0
            continue
        begin, behind = job + 1, jobs[job].behind
        _start(jobs, tree, terms, groups, s, notes, pass_tally, job, now)
        if group >= 0:
            _push_turn(jobs, groups, turns, group, behind)


@part
def _turns(jobs: Records, groups: Groups, chosen: Ints, most: int) -> list[int]:
    """Whose turn it is: a heap of the first of each of these groups, if they have at most so many CPUs."""
    turns = [0]
    turns.clear()
    for group in chosen:
        if groups.all[group].cpus <= most:
            _push_turn(jobs, groups, turns, group, groups.all[group].head)
    return turns


@part
def _push_turn(jobs: Records, groups: Groups, turns: list[int], group: int, job: int) -> None:
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
def _admits(jobs: Records, tree: Tree, s: KernelState, job: int) -> bool:
    return laws.admits_non_preemptible(
        s.pass_non_preemptible, tree.entitled, path_of(tree, jobs[job].leaf), jobs[job].cpus
    )


@part
def _may_go_on(jobs: Records, tree: Tree, groups: Groups, s: KernelState, job: int, group: int) -> bool:
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
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState, notes: Notes, pass_tally: Ints,
    job: int, group: int, area: float, area_freed: int, now: float,
) -> bool:  # fmt: skip
    """Start the job, promise it what is being freed, or preempt others; False if none is possible."""
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    if cpus <= pass_tally[NOW]:
        _start(jobs, tree, terms, groups, s, notes, pass_tally, job, now)
        return True
    if cpus <= pass_tally[THEN]:
        _promise(jobs, tree, s, pass_tally, job)
        return True
    if pass_tally[PREEMPTIONS_LEFT] > 0:
        in_vain = s.in_vain[int(jobs[job].urgent)]
        if group < 0 or cpus < in_vain[path[0]]:
            if pass_tally[CANDIDATES] < 0:
                fill_candidates(jobs, terms, s, notes, pass_tally, area, area_freed, now)
            places = choose_places(jobs, tree, terms, s, pass_tally, job, now)
            if len(places) > 0 and (len(places) <= pass_tally[PREEMPTIONS_LEFT] or pass_tally[RECLAIMS] == 0):
                _reclaim(jobs, tree, terms, groups, s, notes, pass_tally, job, places, now)
                return bool(pass_tally[AGAIN] == 0)
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
    jobs: Records,
    tree: Tree,
    terms: Terms,
    groups: Groups,
    s: KernelState,
    notes: Notes,
    pass_tally: Ints,
    job: int,
    now: float,
) -> None:
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    pass_tally[NOW] -= cpus
    pass_tally[THEN] -= cpus
    pass_tally[DECIDED] = 1
    laws.add_cpus(s.pass_used, path, cpus)
    laws.add_cpus(s.used, path, cpus)
    if jobs[job].is_held:
        laws.add_cpus(s.pass_non_preemptible, path, cpus)
    leave_queue(jobs, tree, groups, s, job)
    begin(jobs, terms, s, notes, job, now)


@part
def _promise(jobs: Records, tree: Tree, s: KernelState, pass_tally: Ints, job: int) -> None:
    """It will fit on what is being freed already; for this pass that counts."""
    cpus, path = jobs[job].cpus, path_of(tree, jobs[job].leaf)
    pass_tally[THEN] -= cpus
    pass_tally[NOW] = min(pass_tally[NOW], pass_tally[THEN])
    laws.add_cpus(s.pass_used, path, cpus)
    if jobs[job].is_held:
        laws.add_cpus(s.pass_non_preemptible, path, cpus)


@part
def _reclaim(
    jobs: Records, tree: Tree, terms: Terms, groups: Groups, s: KernelState, notes: Notes, pass_tally: Ints,
    job: int, places: Ints, now: float,
) -> None:  # fmt: skip
    """Preempt the victims; if the swap area has no room for all of them, the rest of the pass is decided again."""
    victims = s.candidates[places]
    pass_tally[DECIDED] = 1
    if not _reserve(jobs, s, victims):
        pass_tally[AGAIN] = 1
        return
    for at in range(len(places)):
        victim = victims[at]
        s.gone[places[at]] = True
        if s.mature[places[at]]:
            pass_tally[MATURE] -= jobs[victim].cpus
        pass_tally[THEN] += jobs[victim].cpus
        laws.add_cpus(s.pass_used, path_of(tree, jobs[victim].leaf), -jobs[victim].cpus)
    _promise(jobs, tree, s, pass_tally, job)
    pass_tally[PREEMPTIONS_LEFT] -= len(victims)
    pass_tally[RECLAIMS] += 1
    leave_queue(jobs, tree, groups, s, job)
    decide_preemption(jobs, tree, terms, s, notes, job, victims, now)


@part
def _reserve(jobs: Records, s: KernelState, victims: Ints) -> bool:
    """Swap area for all of them, or for none; those that are too many are spared until some is given back."""
    left, fits = s.area[0], True
    for victim in victims:
        if jobs[victim].size <= left:
            left -= jobs[victim].size
        else:
            jobs[victim].spared = s.tally[AREA_FREED]
            fits = False
    if fits:
        s.area[0] = left
    return fits
