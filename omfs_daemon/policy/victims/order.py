"""The order in which candidates become victims.

``simulate/kernels/omfs/kernel_victims.py`` repeats this order on CPU counts for speed; ``tests/simulate/test_omfs.py``
checks that both agree. Change both together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.account_paths import path_sides
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.laws import all_over, reaches_at_most
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.need import ResourceNeed

ANY_CPUS = 1 << 62
"""More than any account has: nothing bounds what it gives."""


def surplus_for_urgent(usage: Usage, rules: Rules) -> Ints:
    """By entity: how many CPUs its jobs may give to an urgent job."""
    no_bound, above = rules.urgent_may_take_entitled, zip(usage.all, usage.entitled, strict=True)
    return np.array([ANY_CPUS if no_bound else used - entitled for used, entitled in above], dtype=np.int64)


def surplus_by_account(need: ResourceNeed, usage: Usage) -> Ints:
    """By entity: by how many CPUs it and all accounts on its side are above their entitlements; its jobs may be victims
    only if that is more than 0."""
    trial, path, entitled = _with(need, usage), need.leaf.path, usage.entitled
    sides = [path_sides(path, e.path).givers if e.is_leaf else () for e in usage.tree.entities]
    return np.array([min((trial[i] - entitled[i] for i in side), default=0) for side in sides], dtype=np.int64)


def _with(need: ResourceNeed, usage: Usage) -> list[int]:
    """Usage with the preemptor running."""
    trial = list(usage.all)
    laws.add_cpus(trial, need.leaf.path, need.cpus)
    return trial


def victims_in_order(need: ResourceNeed, candidates: Candidates, usage: Usage, eligible: Bools) -> Iterator[int]:
    """Lowest priority first, from accounts above their entitlement, for as long as they are above it.

    What an account gives up may bring an account above it, shared with the taker, down to its entitlement, and so let
    the taker take from outside; jobs that were passed over are then considered again.
    """
    trial, entitled, path = _with(need, usage), usage.entitled, need.leaf.path
    spent: set[int] = set()
    todo = np.flatnonzero(eligible).tolist()
    while todo:
        passed_over = []
        for at in todo:
            leaf = candidates.leaves[at]
            if leaf.index in spent:
                continue
            top, givers = path_sides(path, leaf.path)
            if not all_over(trial, entitled, givers):
                spent.add(leaf.index)
            elif not reaches_at_most(trial, entitled, top):
                passed_over.append(at)
            else:
                yield at
                laws.add_cpus(trial, leaf.path, -int(candidates.cpus[at]))
        if len(passed_over) == len(todo):
            return
        todo = passed_over


def victims_in_order_for_urgent(candidates: Candidates, usage: Usage, rules: Rules, eligible: Bools) -> Iterator[int]:
    """Longest remaining time first, borrowers' jobs before those of accounts within their entitlement.

    The latter is our refinement of UJFB, which has no accounts. The quantum does not protect from urgent jobs.
    """
    trial = list(usage.all)
    owned = []
    for at in candidates.by_remaining[eligible[candidates.by_remaining]]:
        index = candidates.leaves[at].index
        if trial[index] > usage.entitled[index]:
            trial[index] -= int(candidates.cpus[at])
            yield int(at)
        else:
            owned.append(int(at))
    if rules.urgent_may_take_entitled:
        yield from owned
