"""Chooses the victims for a preemptor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, combinations, islice, product
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.preempt_methods import ENDS
from omfs_daemon.policy.arrays.free_resources import FreeResources, JobResources
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.cheapest import choose_cheapest
from omfs_daemon.policy.victims.eligibility import are_borrowers, give_way_to_own, may_take_all
from omfs_daemon.policy.victims.need import ResourceNeed, VictimChoice
from omfs_daemon.policy.victims.node_order import TakingOrder, nodes_in_order
from omfs_daemon.policy.victims.order import (
    ANY_CPUS,
    surplus_by_account,
    surplus_for_urgent,
    victims_in_order,
    victims_in_order_for_urgent,
)

WINDOWS = 16
"""The most groups of neighbors in the order of the nodes that are tried for one need."""
COMBINATIONS = 70
"""The most other groups of nodes that are tried for one need: all of 4 nodes among 8."""
UNTRIED = 16
"""The most ways to leave out a job of each set that was preempted in vain."""
SETS = 256
"""The most sets of victims that are looked at on one group of nodes when the first one is not fair."""
MOST_JOBS = 64
"""The most jobs among which such a set is searched."""

Pick = Callable[[int], str]


class _Law(NamedTuple):
    """Who may be preempted for a need, by candidate.

    surplus     CPUs that its account may give; it is no victim if that is not more than 0
    order       those of the eligible ones that may be taken, in the order in which they give
    is_fair     whether all of these may be preempted
    is_bounded  whether accounts bound what may be taken: what one job gives may keep another from being taken
    """

    surplus: Ints
    order: Callable[[Bools], Iterator[int]]
    is_fair: Callable[[Sequence[int]], bool]
    is_bounded: bool


def choose_victims(
    need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, rules: Rules
) -> VictimChoice | None:
    """The victims for a need that does not fit on what will be ``free``, none of them needless; None if not enough
    jobs may be preempted.

    An urgent job takes from all accounts that the rules let it take from, and so does a real-time job that is due, for
    which the cheapest ones are taken. Another one takes from accounts above their entitlement if its own account is not
    beyond its own, otherwise from jobs of its own account that give way to it.
    """
    choice = _choice(need, candidates, free, usage, rules)
    return _left_to_run(choice, candidates) if choice is not None and rules.leaves_ending else choice


def choose_untried(
    need: ResourceNeed,
    candidates: Candidates,
    free: FreeResources,
    usage: Usage,
    rules: Rules,
    tried: Sequence[Collection[str]],
) -> VictimChoice | None:
    """As ``choose_victims``, after preemptions in vain of these sets: none of their jobs where others are enough, and
    never all jobs of a set again."""
    index = {job.ref: at for at, job in enumerate(candidates.jobs)}
    sets = [[index[ref] for ref in one if ref in index] for one in tried]
    whole = [found for found, one in zip(sets, tried, strict=True) if len(found) == len(one)]
    alive = candidates.alive
    try:
        for without in chain([[at for found in sets for at in found]], islice(product(*whole), UNTRIED)):
            candidates.alive = alive.copy()
            candidates.alive[list(without)] = False
            choice = choose_victims(need, candidates, free, usage, rules)
            if choice is not None:
                return choice
    finally:
        candidates.alive = alive
    return None


def _left_to_run(choice: VictimChoice, candidates: Candidates) -> VictimChoice:
    """Nobody is preempted whose time is up before the slowest victim lets go, for the preemptor could not start
    sooner."""
    slowest = max((candidates.seconds(at, method) for at, method in choice.victims), default=0.0)
    if slowest <= 0:
        return choice
    ends = [0 < candidates.longest_remaining(at) <= slowest for at, _ in choice.victims]
    victims = [(at, ENDS.name if is_up else method) for (at, method), is_up in zip(choice.victims, ends, strict=True)]
    return choice._replace(victims=tuple(victims))


def _choice(
    need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, rules: Rules
) -> VictimChoice | None:
    if need.realtime is not None:
        return choose_cheapest(need, candidates, free, usage, rules)
    if need.urgent:
        return _choose(need, candidates, free, usage, _for_urgent(candidates, usage, rules))
    choice = None
    if usage.entitles(need.leaf, need.cpus):
        choice = _choose(need, candidates, free, usage, _for_entitled(need, candidates, usage))
    if choice is None and need.own_since < inf:
        choice = _choose(need, candidates, free, usage, _for_own(need, candidates))
    return choice


def _for_urgent(candidates: Candidates, usage: Usage, rules: Rules) -> _Law:
    takes_all = rules.urgent_may_take_entitled
    return _Law(
        surplus_for_urgent(usage, rules)[candidates.leaf],
        lambda eligible: victims_in_order_for_urgent(candidates, usage, rules, eligible),
        lambda chosen: takes_all or are_borrowers(_givers(candidates, chosen), usage),
        is_bounded=not takes_all,
    )


def _for_entitled(need: ResourceNeed, candidates: Candidates, usage: Usage) -> _Law:
    return _Law(
        surplus_by_account(need, usage)[candidates.leaf],
        lambda eligible: victims_in_order(need, candidates, usage, eligible),
        lambda chosen: may_take_all(need.leaf, need.cpus, _givers(candidates, chosen), usage),
        is_bounded=True,
    )


def _for_own(need: ResourceNeed, candidates: Candidates) -> _Law:
    return _Law(
        np.where(give_way_to_own(need, candidates.leaf, candidates.submitted), ANY_CPUS, 0),
        lambda eligible: iter(np.flatnonzero(eligible).tolist()),
        lambda _: True,
        is_bounded=False,
    )


def _givers(candidates: Candidates, chosen: Iterable[int]) -> list[tuple[AccountNode, int]]:
    return [(candidates.leaves[at], int(candidates.cpus[at])) for at in chosen]


def _choose(
    need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, law: _Law
) -> VictimChoice | None:
    """The victims that this law permits.

    First with each victim's preferred method; if that frees too little (a suspended job keeps its memory), with the
    method that frees most. For each, until victims are found:

    1. Where the number of nodes is fixed and accounts bound what may be taken: by groups of nodes, first those whose
       last victim comes first in the order of the rules. So no account reaches its entitlement by giving jobs on nodes
       that do not help.
    2. Over all nodes, in the order of the rules.
    3. By the same groups, any set of victims that is fair: the first in order may bring an account to its entitlement
       although fewer, larger ones are enough.

    The amount of work is bounded by the constants above and ``Candidates.searches``, never by time, so that the same
    input gives the same plan.
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
    eligible &= law.surplus > 0
    if not need.urgent:
        eligible &= candidates.mature
    if least > free.total + int(candidates.cpus[eligible].sum()):
        return None
    for pick in (candidates.preferred, candidates.most_freeing) if candidates.has_choice else (candidates.preferred,):
        search = _Search(need, candidates, free, usage, law, pick)
        taking = TakingOrder(candidates.by_node(need.urgent), candidates.places(need.urgent), eligible, law.surplus)
        choice = (
            search.for_own_cpus(eligible)
            or search.first_of(search.over, search.groups(taking), eligible)
            or search.over(eligible)
            or search.any_fair(taking)
        )
        if choice is not None:
            return choice
    return None


class _Search:
    """The search for one need; ``pick`` chooses each victim's method."""

    def __init__(
        self, need: ResourceNeed, candidates: Candidates, free: FreeResources, usage: Usage, law: _Law, pick: Pick
    ) -> None:
        self.need, self.candidates, self.free = need, candidates, free
        self.usage, self.law, self.pick = usage, law, pick

    def for_own_cpus(self, eligible: Bools) -> VictimChoice | None:
        """The victims for a suspended job among those that have its own CPUs; others would be preempted in vain."""
        if self.need.ref not in self.free.blocked:
            return None
        return self.over(eligible & self.candidates.in_the_way_of(self.need.ref))

    def over(self, eligible: Bools, only: Ints | None = None) -> VictimChoice | None:
        """The victims in order among the eligible ones, for a placement on these nodes only (None: anywhere)."""
        trial = self.free.copy()
        taken = self._shortest_prefix(trial, self.law.order(eligible), only)
        return self._without_needless(trial, taken, only) if taken is not None else None

    def groups(self, taking: TakingOrder) -> list[Ints]:
        """Groups of nodes (their indices, ascending) on which the need might fit, the best ones first; none if
        nothing bounds what may be taken, since the order over all nodes is then as good."""
        need, node_arrays = self.need, self.free.node_arrays
        request = node_arrays.normalized(need.request)
        if not self.law.is_bounded or need.allocations:
            return []
        frees_memory = self.candidates.leave(self.pick)
        found: dict[tuple[int, ...], None] = {}
        for suitable in node_arrays.suitable(request):
            nodes = nodes_in_order(request, suitable, self.candidates, self.free, taking, frees_memory).tolist()
            windows = (nodes[at : at + request.nodes] for at in range(len(nodes) - request.nodes + 1))
            others = combinations(nodes, request.nodes) if request.nodes > 1 else ()
            for group in chain(islice(windows, WINDOWS), islice(others, COMBINATIONS)):
                found[tuple(sorted(group))] = None
        return [np.array(group, dtype=np.int64) for group in found]

    def first_of(
        self,
        search: Callable[[Bools, Ints | None], VictimChoice | None],
        groups: Iterable[Ints | None],
        eligible: Bools,
    ) -> VictimChoice | None:
        """What the search finds on the first group (None: all nodes) on which it finds anything."""
        for group in groups:
            mask: Bools | None = None
            if group is not None:
                mask = np.zeros(len(self.free.node_arrays.names), dtype=bool)
                mask[group] = True
            choice = search(eligible if mask is None else eligible & self.candidates.on(mask), group)
            if choice is not None:
                return choice
        return None

    def any_fair(self, taking: TakingOrder) -> VictimChoice | None:
        """The same by any set that is fair, in whatever order the jobs are given."""
        if not self.law.is_bounded or self.candidates.searches <= 0 or not taking.eligible.any():
            return None
        self.candidates.searches -= 1
        groups = self.groups(taking._replace(surplus=np.full(len(taking.surplus), ANY_CPUS)))
        return self.first_of(self.among_all_sets, [*groups, None], taking.eligible)

    def among_all_sets(self, eligible: Bools, only: Ints | None) -> VictimChoice | None:
        """The first set of victims that is fair, of all without needless ones; jobs late in the order are spared first.

        Bounded by ``MOST_JOBS`` and ``SETS``.
        """
        order = list(islice(self.law.order(eligible), MOST_JOBS))
        late = eligible.copy()
        late[order] = False
        order += np.flatnonzero(late)[: MOST_JOBS - len(order)].tolist()
        trial = self.free.copy()
        for given in self._freed(order):
            trial.give(given)
        if self.need.place(trial, only=only) is None:
            return None
        tries = iter(range(SETS))
        keep = self._fair_set(trial, order, (), only, tries)
        return self._placed(trial, keep, only) if keep is not None else None

    def _fair_set(
        self, trial: FreeResources, left: Sequence[int], keep: tuple[int, ...], only: Ints | None, tries: Iterator[int]
    ) -> tuple[int, ...] | None:
        """``keep`` and some of those ``left``, a fair set without needless ones, and ``trial`` with what they free."""
        if next(tries, None) is None:
            return None
        if not left:
            return keep if self.law.is_fair(keep) and not self._has_needless(trial, keep, only) else None
        last, given = left[-1], self.candidates.freed_by(left[-1], self.pick(left[-1]))
        trial.take(given)
        if self.need.place(trial, only=only) is not None:
            found = self._fair_set(trial, left[:-1], keep, only, tries)
            if found is not None:
                return found
        trial.give(given)
        kept = (*keep, last)
        if self.usage.tree.is_flat and not self.law.is_fair(kept):  # more victims of other accounts do not help
            return None
        return self._fair_set(trial, left[:-1], kept, only, tries)

    def _has_needless(self, trial: FreeResources, keep: Sequence[int], only: Ints | None) -> bool:
        for given in self._freed(keep):
            trial.take(given)
            fits = self.need.place(trial, only=only) is not None
            trial.give(given)
            if fits:
                return True
        return False

    def _placed(self, trial: FreeResources, keep: Sequence[int], only: Ints | None) -> VictimChoice | None:
        """These victims, if there is room for what they move out; ``trial``: with what they free."""
        allocations = self.need.place(trial, self.free, only)
        if allocations is None or not self.candidates.have_room(keep, self.pick):
            return None
        return VictimChoice(tuple((at, self.pick(at)) for at in keep), allocations)

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
        return self._placed(trial, keep, wanted) if self.law.is_fair(keep) else None
