"""Chooses the victims for a preemptor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.policy.arrays.free_resources import FreeResources, JobResources
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.eligibility import are_borrowers, may_take_all
from omfs_daemon.policy.victims.need import ResourceNeed
from omfs_daemon.policy.victims.order import eligible_accounts, victims_in_order, victims_in_order_for_urgent

WINDOWS = 16
"""The most groups of nodes to try when the victims are scattered; this bounds the time."""

Pick = Callable[[int], str]


class VictimChoice(NamedTuple):
    """The victims (indices of candidates) with their methods, and where the preemptor then fits."""

    victims: tuple[tuple[int, str], ...]
    allocations: tuple[Allocation, ...]


def choose_victims(
    need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, rules: Rules
) -> VictimChoice | None:
    """The victims for a need that does not fit on what will be ``free``, none of them needless; None if not enough
    jobs may be preempted.

    First with each victim's preferred method; if that frees too little (a suspended job keeps its memory), with the
    method that frees most. First over all nodes in the order of the rules; if those jobs are so scattered that the
    accounts reach their entitlement before the preemptor fits, by groups of nodes, the emptiest first.
    """
    node_arrays = free.node_arrays
    least = need.cpus if need.allocations else need.request.cpus
    if not need.urgent and least > free.total + candidates.mature_cpus:
        return None
    if need.allocations:
        touching = candidates.on(node_arrays.mask_of(allocation.node for allocation in need.allocations))
    else:
        touching = candidates.on_suitable(node_arrays.suitable(node_arrays.normalized(need.request)))
    eligible = candidates.alive & touching
    if not need.urgent:
        eligible &= candidates.mature & eligible_accounts(need, usage)[candidates.leaf]
    if least > free.total + int(candidates.cpus[eligible].sum()):
        return None
    for pick in (candidates.preferred, candidates.most_freeing) if candidates.has_choice else (candidates.preferred,):
        search = _Search(need, candidates, free, usage, rules, pick)
        choice = search.for_own_cpus(eligible) or search.over(eligible) or search.by_windows(eligible)
        if choice is not None:
            return choice
    return None


class _Search:
    """The search for one need; ``pick`` chooses each victim's method."""

    def __init__(
        self, need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, rules: Rules, pick: Pick
    ) -> None:
        self.need, self.candidates, self.free = need, candidates, free
        self.usage, self.rules, self.pick = usage, rules, pick

    def for_own_cpus(self, eligible: Bools) -> VictimChoice | None:
        """The victims for a suspended job among those that have its own CPUs; others would be preempted in vain."""
        if self.need.ref not in self.free.blocked:
            return None
        return self.over(eligible & self.candidates.in_the_way_of(self.need.ref))

    def over(self, eligible: Bools, only: Ints | None = None) -> VictimChoice | None:
        """The victims in order among the eligible ones, for a placement on these nodes only (None: anywhere)."""
        if self.need.urgent:
            order = victims_in_order_for_urgent(self.candidates, self.usage, self.rules, eligible)
        else:
            order = victims_in_order(self.need, self.candidates, self.usage, eligible)
        trial = self.free.copy()
        taken = self._shortest_prefix(trial, order, only)
        return self._without_needless(trial, taken, only) if taken is not None else None

    def by_windows(self, eligible: Bools) -> VictimChoice | None:
        """The same on groups of nodes, starting where the fewest CPUs must be freed."""
        need, node_arrays = self.need, self.free.node_arrays
        request = node_arrays.normalized(need.request)
        unbounded = need.urgent and self.rules.urgent_may_take_entitled
        if unbounded or need.allocations or not eligible.any():
            return None
        cpus_per_node = -(-request.cpus // request.nodes)
        by_node = self.candidates.cpus_by_node(eligible)
        for suitable in node_arrays.suitable(request):
            nodes = suitable.nodes
            wanted = (
                node_arrays.cpus[nodes] if request.exclusive else np.full(len(nodes), cpus_per_node, dtype=np.int64)
            )
            missing = np.maximum(0, wanted - self.free.cpus[nodes])
            hopeful = missing <= by_node[nodes]
            nodes = nodes[hopeful][np.argsort(missing[hopeful], kind="stable")]
            for first in range(min(WINDOWS, len(nodes) - request.nodes + 1)):
                window = np.sort(nodes[first : first + request.nodes])
                mask = np.zeros(len(node_arrays.names), dtype=bool)
                mask[window] = True
                choice = self.over(eligible & self.candidates.on(mask), window)
                if choice is not None:
                    return choice
        return None

    def _freed(self, taken: Sequence[int]) -> list[JobResources]:
        return [self.candidates.freed_by(at, self.pick(at)) for at in taken]

    def _shortest_prefix(self, trial: FreeResources, order: Iterator[int], only: Ints | None) -> list[int] | None:
        """The first victims in order that are enough, found in doubling steps and then by bisection.

        Afterwards ``trial`` contains what they free.
        """
        taken: list[int] = []
        low = 0
        while self.need.place(trial, only=only) is None:
            low = len(taken) + 1
            more = list(islice(order, max(1, len(taken))))
            if not more:
                return None
            taken += more
            for given in self._freed(more):
                trial.give(given)
        high = at = len(taken)
        while low < high:
            middle = (low + high) // 2
            self._move(trial, taken, at, middle)
            at = middle
            if self.need.place(trial, only=only) is not None:
                high = middle
            else:
                low = middle + 1
        self._move(trial, taken, at, high)
        return taken[:high]

    def _move(self, trial: FreeResources, taken: Sequence[int], at: int, to: int) -> None:
        """Change ``trial`` from what the first ``at`` victims free to what the first ``to`` free."""
        for given in self._freed(taken[at:to]):
            trial.give(given)
        for given in self._freed(taken[to:at]):
            trial.take(given)

    def _without_needless(self, trial: FreeResources, taken: Sequence[int], only: Ints | None) -> VictimChoice | None:
        """Choose the nodes, drop victims elsewhere, then drop others, last chosen first, while the need still fits."""
        need, node_arrays = self.need, self.free.node_arrays
        allocations = need.place(trial, self.free, only)
        if allocations is None:
            return None
        wanted = node_arrays.indices_of(allocation.node for allocation in allocations)
        chosen = set(wanted.tolist())
        keep = []
        for at, given in zip(taken, self._freed(taken), strict=True):
            if any(i in chosen for i, _, _ in given.allocations):
                keep.append(at)
            else:
                trial.take(given)
        for at in list(reversed(keep)):
            given = self.candidates.freed_by(at, self.pick(at))
            trial.take(given)
            if need.place(trial, only=wanted) is None:
                trial.give(given)
            else:
                keep.remove(at)
        final = need.place(trial, self.free, wanted)
        if final is None or not self._is_fair(keep) or not self.candidates.have_room(keep, self.pick):
            return None
        return VictimChoice(tuple((at, self.pick(at)) for at in keep), final)

    def _is_fair(self, keep: Sequence[int]) -> bool:
        givers = [(self.candidates.leaves[at], int(self.candidates.cpus[at])) for at in keep]
        if not self.need.urgent:
            return may_take_all(self.need.leaf, self.need.cpus, givers, self.usage)
        return self.rules.urgent_may_take_entitled or are_borrowers(givers, self.usage)
