"""Which jobs to stop for one, on a counter of CPUs: as ``policy/pool.py`` and ``policy/victims.py`` choose them."""

from __future__ import annotations

import numpy as np

from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.omfs.kernel_state import LAST
from omfs_daemon.simulate.kernels.omfs.kernel_state import MATURE
from omfs_daemon.simulate.kernels.omfs.kernel_state import PASS
from omfs_daemon.simulate.kernels.omfs.kernel_state import POOL
from omfs_daemon.simulate.kernels.omfs.kernel_state import RUNS
from omfs_daemon.simulate.kernels.omfs.kernel_state import THEN
from omfs_daemon.simulate.kernels.omfs.kernel_state import Notes
from omfs_daemon.simulate.kernels.omfs.kernel_state import State
from omfs_daemon.simulate.kernels.omfs.kernel_state import Terms
from omfs_daemon.simulate.kernels.omfs.kernel_state import Tree
from omfs_daemon.simulate.kernels.omfs.kernel_state import path_of
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints


@part
def has_stops_left(jobs: Records, s: State, notes: Notes, job: int, most: int, now: float) -> bool:
    entry, counted = jobs[job].last_stop, 0
    while entry >= 0 and counted < most and laws.counts_in_hour(notes.log[entry][0], now):
        counted += 1
        entry = notes.log[entry][3]
    return counted < most


@part
def fill_pool(
    jobs: Records, terms: Terms, s: State, notes: Notes, books: Ints, area: float, room_made: int, now: float
) -> None:
    """All that could be stopped at the beginning of this pass: the one that started last comes first.

    ``area``, ``room_made``: bytes of the swap area that were free then, and how often some became free before.
    """
    size, mature, latest = 0, 0, laws.latest_mature_start(now, terms.quantum)
    job = s.tally[LAST]
    while job >= 0:
        if (
            jobs[job].state == RUNS
            and jobs[job].stoppable
            and jobs[job].started_in != s.tally[PASS]
            and jobs[job].size <= area
            and jobs[job].spared != room_made
            and has_stops_left(jobs, s, notes, job, terms.stops_per_hour, now)
        ):
            s.pool[size] = job
            s.mature[size] = jobs[job].runs_since <= latest
            s.gone[size] = False
            mature += jobs[job].cpus if s.mature[size] else 0
            size += 1
        job = jobs[job].earlier
    books[POOL], books[MATURE] = size, mature


@part
def choose(jobs: Records, tree: Tree, terms: Terms, s: State, books: Ints, job: int, now: float) -> Ints:
    """Places in the pool of the victims for this job, none of them needless; none if not enough may be stopped."""
    if jobs[job].urgent:
        taken, freed = _in_turn_for_urgent(jobs, tree, terms, s, books, job, now)
    else:
        taken, freed = _in_turn(jobs, tree, s, books, job)
    wanted, idle = jobs[job].cpus, books[THEN]
    if idle + freed < wanted:
        return taken[:0]
    needed = np.ones(len(taken), dtype=np.bool_)
    for at in range(len(taken) - 1, -1, -1):
        cpus = jobs[s.pool[taken[at]]].cpus
        if idle + freed - cpus >= wanted:
            needed[at] = False
            freed -= cpus
    keep = taken[needed]
    return keep if _is_fair(jobs, tree, terms, s, job, keep) else keep[:0]


@part
def _in_turn(jobs: Records, tree: Tree, s: State, books: Ints, job: int) -> tuple[Ints, int]:
    """Least priority first, from leaves above their entitlement, for as long as they are; as many as are enough.

    What a leaf gives up may bring an account, which it shares with the taker, down to its entitlement, and so let the
    taker take from outside: those that were passed over come again then.
    """
    wanted, idle, taker = jobs[job].cpus, books[THEN], jobs[job].leaf
    nobody = np.empty(0, dtype=np.int64)
    if wanted > max(idle, 0) + books[MATURE]:
        return nobody, 0
    trial = s.pass_used.copy()
    laws.add(trial, path_of(tree, taker), wanted)
    is_spent = np.ones(len(trial), dtype=np.bool_)
    for leaf in tree.leaves:
        is_spent[leaf] = not laws.all_over(trial, tree.entitled, _givers(tree, taker, leaf))
    todo, count, eligible = np.empty(books[POOL], dtype=np.int64), 0, 0
    for place in range(books[POOL]):
        if s.mature[place] and not s.gone[place] and not is_spent[jobs[s.pool[place]].leaf]:
            todo[count] = place
            eligible += jobs[s.pool[place]].cpus
            count += 1
    if wanted > max(idle, 0) + eligible:
        return nobody, 0
    taken, size, freed = np.empty(count, dtype=np.int64), 0, 0
    while count > 0:
        passed_over = 0
        for at in range(count):
            place = todo[at]
            leaf, cpus = jobs[s.pool[place]].leaf, jobs[s.pool[place]].cpus
            if is_spent[leaf]:
                continue
            if not laws.all_over(trial, tree.entitled, _givers(tree, taker, leaf)):
                is_spent[leaf] = True
            elif not laws.reaches_at_most(trial, tree.entitled, tree.top[taker, leaf]):
                todo[passed_over] = place
                passed_over += 1
            else:
                taken[size] = place
                size += 1
                freed += cpus
                if idle + freed >= wanted:
                    return taken[:size], freed
                laws.add(trial, path_of(tree, leaf), -cpus)
        if passed_over == count:
            break
        count = passed_over
    return taken[:size], freed


@part
def _in_turn_for_urgent(
    jobs: Records, tree: Tree, terms: Terms, s: State, books: Ints, job: int, now: float
) -> tuple[Ints, int]:
    """Longest remaining first; borrowers' jobs before those of accounts that only use their own. No quantum protects
    from urgent jobs (UJFB, section IV)."""
    wanted, idle, size, freed = jobs[job].cpus, books[THEN], 0, 0
    taken = np.empty(books[POOL], dtype=np.int64)
    owned, owners = np.empty(books[POOL], dtype=np.int64), 0
    trial = s.pass_used.copy()
    for place in _by_remaining(jobs, s, books[POOL], now):
        if s.gone[place]:
            continue
        leaf, cpus = jobs[s.pool[place]].leaf, jobs[s.pool[place]].cpus
        if trial[leaf] <= tree.entitled[leaf]:
            owned[owners] = place
            owners += 1
            continue
        trial[leaf] -= cpus
        taken[size] = place
        size += 1
        freed += cpus
        if idle + freed >= wanted:
            return taken[:size], freed
    if terms.urgent_may_take_entitled:
        for place in owned[:owners]:
            taken[size] = place
            size += 1
            freed += jobs[s.pool[place]].cpus
            if idle + freed >= wanted:
                break
    return taken[:size], freed


@part
def _by_remaining(jobs: Records, s: State, size: int, now: float) -> Ints:
    remaining: Floats = np.empty(size, dtype=np.float64)
    for place in range(size):
        job = s.pool[place]
        worked = jobs[job].done + max(0.0, now - jobs[job].works_from)
        remaining[place] = max(0.0, jobs[job].estimate - worked)
    return np.argsort(-remaining, kind="mergesort")


@part
def _givers(tree: Tree, taker: int, giver: int) -> Ints:
    """The giver's path below the first account that both share."""
    return tree.paths[giver, : tree.parted[taker, giver]]


@part
def _is_fair(jobs: Records, tree: Tree, terms: Terms, s: State, job: int, keep: Ints) -> bool:
    if jobs[job].urgent and terms.urgent_may_take_entitled:
        return True
    cpus = jobs.cpus[s.pool[keep]]
    order = np.argsort(cpus, kind="mergesort")
    cpus, leaves = cpus[order], jobs.leaf[s.pool[keep]][order]
    trial, taker = s.pass_used.copy(), jobs[job].leaf
    if jobs[job].urgent:
        return laws.takes_from_borrowers(trial, tree.entitled, leaves, cpus)
    laws.add(trial, path_of(tree, taker), jobs[job].cpus)
    paths = tree.paths[leaves]
    givers = paths.copy()
    tops = np.empty(len(leaves), dtype=np.int64)
    for at, leaf in enumerate(leaves):
        tops[at] = tree.top[taker, leaf]
        givers[at, tree.parted[taker, leaf] :] = leaf  # a rule over all of them may be told one twice
    return laws.takes_fairly(trial, tree.entitled, tops, givers, paths, cpus)
