"""Which jobs to preempt for one, on a counter of CPUs: repeats ``policy/victims/order.py`` (tests hold them equal)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.rules import laws
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.omfs.kernel_state import (
    CANDIDATES,
    LAST_STARTED,
    MATURE,
    PASS,
    RUNNING,
    THEN,
    KernelState,
    Notes,
    Terms,
    Tree,
    path_of,
)
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED
from omfs_daemon.simulate.kernels.running import expected_remaining


@part
def may_be_preempted_again(jobs: Records, s: KernelState, notes: Notes, job: int, most: int, now: float) -> bool:
    entry, counted = jobs[job].last_preemption, 0
    while entry >= 0 and counted < most and laws.counts_in_hour(notes.log[entry][0], now):
        counted += 1
        entry = notes.log[entry][3]
    return counted < most


@part
def fill_candidates(
    jobs: Records,
    terms: Terms,
    s: KernelState,
    notes: Notes,
    pass_tally: Ints,
    area: float,
    area_freed: int,
    now: float,
) -> None:
    """All jobs that could be preempted at the beginning of this pass, last started first.

    ``area``, ``area_freed``: bytes of the swap area that were free then, and how often some became free before.
    """
    size, mature, latest = 0, 0, laws.latest_mature_start(now, terms.quantum)
    job = s.tally[LAST_STARTED]
    while job >= 0:
        if (
            jobs[job].state == RUNNING
            and jobs[job].preemptible
            and jobs[job].started_in != s.tally[PASS]
            and jobs[job].size <= area
            and jobs[job].spared != area_freed
            and may_be_preempted_again(jobs, s, notes, job, terms.preemptions_per_hour, now)
        ):
            s.candidates[size] = job
            s.mature[size] = jobs[job].runs_since <= latest
            s.gone[size] = False
            mature += jobs[job].cpus if s.mature[size] else 0
            size += 1
        job = jobs[job].earlier
    pass_tally[CANDIDATES], pass_tally[MATURE] = size, mature


@part
def choose_places(
    jobs: Records, tree: Tree, terms: Terms, s: KernelState, pass_tally: Ints, job: int, now: float
) -> Ints:
    """Places of the victims for this job among the candidates, none needless; none if not enough may be preempted."""
    if jobs[job].urgent:
        taken, freed = _in_turn_for_urgent(jobs, tree, terms, s, pass_tally, job, now)
    else:
        taken, freed = _in_turn(jobs, tree, s, pass_tally, job)
    wanted, idle = jobs[job].cpus, pass_tally[THEN]
    if idle + freed < wanted:
        return taken[:0]
    needed = np.ones(len(taken), dtype=np.bool_)
    for at in range(len(taken) - 1, -1, -1):
        cpus = jobs[s.candidates[taken[at]]].cpus
        if idle + freed - cpus >= wanted:
            needed[at] = False
            freed -= cpus
    keep = taken[needed]
    return keep if _is_fair(jobs, tree, terms, s, job, keep) else keep[:0]


@part
def _in_turn(jobs: Records, tree: Tree, s: KernelState, pass_tally: Ints, job: int) -> tuple[Ints, int]:
    """Least priority first, from leaves above their entitlement, for as long as they are; as many as are enough.

    What a leaf gives up may bring an account, which it shares with the taker, down to its entitlement, and so let the
    taker take from outside: those that were passed over come again then.
    """
    wanted, idle, taker = jobs[job].cpus, pass_tally[THEN], jobs[job].leaf
    nobody = np.empty(0, dtype=np.int64)
    if wanted > max(idle, 0) + pass_tally[MATURE]:
        return nobody, 0
    trial = s.pass_used.copy()
    laws.add_cpus(trial, path_of(tree, taker), wanted)
    is_spent = np.ones(len(trial), dtype=np.bool_)
    for leaf in tree.leaves:
        is_spent[leaf] = not laws.all_over(trial, tree.entitled, _givers(tree, taker, leaf))
    todo, count, eligible = np.empty(pass_tally[CANDIDATES], dtype=np.int64), 0, 0
    for place in range(pass_tally[CANDIDATES]):
        if s.mature[place] and not s.gone[place] and not is_spent[jobs[s.candidates[place]].leaf]:
            todo[count] = place
            eligible += jobs[s.candidates[place]].cpus
            count += 1
    if wanted > max(idle, 0) + eligible:
        return nobody, 0
    taken, size, freed = np.empty(count, dtype=np.int64), 0, 0
    while count > 0:
        passed_over = 0
        for at in range(count):
            place = todo[at]
            leaf, cpus = jobs[s.candidates[place]].leaf, jobs[s.candidates[place]].cpus
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
                laws.add_cpus(trial, path_of(tree, leaf), -cpus)
        if passed_over == count:
            break
        count = passed_over
    return taken[:size], freed


@part
def _in_turn_for_urgent(
    jobs: Records, tree: Tree, terms: Terms, s: KernelState, pass_tally: Ints, job: int, now: float
) -> tuple[Ints, int]:
    """Longest remaining first; borrowers' jobs before those of accounts that only use their own. No quantum protects
    from urgent jobs (UJFB, section IV)."""
    wanted, idle, size, freed = jobs[job].cpus, pass_tally[THEN], 0, 0
    taken = np.empty(pass_tally[CANDIDATES], dtype=np.int64)
    owned, owners = np.empty(pass_tally[CANDIDATES], dtype=np.int64), 0
    trial = s.pass_used.copy()
    for place in _by_remaining(jobs, s, pass_tally[CANDIDATES], now):
        if s.gone[place]:
            continue
        leaf, cpus = jobs[s.candidates[place]].leaf, jobs[s.candidates[place]].cpus
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
            freed += jobs[s.candidates[place]].cpus
            if idle + freed >= wanted:
                break
    return taken[:size], freed


@part
def _by_remaining(jobs: Records, s: KernelState, size: int, now: float) -> Ints:
    remaining: Floats = np.empty(size, dtype=np.float64)
    for place in range(size):
        job = s.candidates[place]
        worked = jobs[job].done + max(0.0, now - jobs[job].works_from)
        if s.history.rule == NOT_LEARNED:
            remaining[place] = max(0.0, jobs[job].estimate - worked)
        else:
            remaining[place] = expected_remaining(jobs[job].predicted, worked, s.history.limit[job])
    return np.argsort(-remaining, kind="mergesort")


@part
def _givers(tree: Tree, taker: int, giver: int) -> Ints:
    """The giver's path below the first account that both share."""
    return tree.paths[giver, : tree.parted[taker, giver]]


@part
def _is_fair(jobs: Records, tree: Tree, terms: Terms, s: KernelState, job: int, keep: Ints) -> bool:
    if jobs[job].urgent and terms.urgent_may_take_entitled:
        return True
    cpus = jobs.cpus[s.candidates[keep]]
    order = np.argsort(cpus, kind="mergesort")
    cpus, leaves = cpus[order], jobs.leaf[s.candidates[keep]][order]
    trial, taker = s.pass_used.copy(), jobs[job].leaf
    if jobs[job].urgent:
        return laws.takes_from_borrowers(trial, tree.entitled, leaves, cpus)
    laws.add_cpus(trial, path_of(tree, taker), jobs[job].cpus)
    paths = tree.paths[leaves]
    givers = paths.copy()
    tops = np.empty(len(leaves), dtype=np.int64)
    for at, leaf in enumerate(leaves):
        tops[at] = tree.top[taker, leaf]
        givers[at, tree.parted[taker, leaf] :] = leaf  # a rule over all of them may see one twice
    return laws.takes_fairly(trial, tree.entitled, tops, givers, paths, cpus)
