"""In which order they are looked at: one file to change it."""

from __future__ import annotations

from collections.abc import Iterator
import numpy as np
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.account_paths import sides
from omfs_daemon.policy.rules.laws import all_over
from omfs_daemon.policy.rules.laws import reaches_at_most
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.victims.candidates import Pool
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.victims.need import Need


def _givers(need: Need, usage: Usage) -> Bools:
    """By entity: whether its jobs may come into question. What lies above on its side must be over as well."""
    trial, path = _with(need, usage), need.leaf.path
    return np.array(
        [e.is_leaf and all_over(trial, usage.entitled, sides(path, e.path).givers) for e in usage.tree.entities],
        dtype=bool,
    )


def _with(need: Need, usage: Usage) -> list[int]:
    """Usage as it will be with the job running."""
    trial = list(usage.all)
    laws.add(trial, need.leaf.path, need.cpus)
    return trial


def _in_turn(need: Need, pool: Pool, usage: Usage, eligible: Bools) -> Iterator[int]:
    """Least priority first, from accounts above their entitlement, for as long as they are above it.

    What an account gives up may bring one above it, which it shares with the taker, down to its entitlement, and so
    let the taker take from outside: those that were passed over come again then.
    """
    trial, entitled, path = _with(need, usage), usage.entitled, need.leaf.path
    spent: set[int] = set()
    todo = np.flatnonzero(eligible).tolist()
    while todo:
        passed_over = []
        for at in todo:
            leaf = pool.leaves[at]
            if leaf.index in spent:
                continue
            top, givers = sides(path, leaf.path)
            if not all_over(trial, entitled, givers):
                spent.add(leaf.index)
            elif not reaches_at_most(trial, entitled, top):
                passed_over.append(at)
            else:
                yield at
                laws.add(trial, leaf.path, -int(pool.cpus[at]))
        if len(passed_over) == len(todo):
            return
        todo = passed_over


def _in_turn_for_urgent(pool: Pool, usage: Usage, rules: Rules, eligible: Bools) -> Iterator[int]:
    """Longest remaining first; borrowers' jobs before those of accounts that only use their own (our refinement of
    UJFB, which knows no accounts). No quantum protects from urgent jobs."""
    trial = list(usage.all)
    owned = []
    for at in pool.by_remaining[eligible[pool.by_remaining]]:
        index = pool.leaves[at].index
        if trial[index] > usage.entitled[index]:
            trial[index] -= int(pool.cpus[at])
            yield int(at)
        else:
            owned.append(int(at))
    if rules.urgent_may_take_entitled:
        yield from owned
