"""Which running jobs to stop, so that one certain job starts; or none, if that cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Request, Share
from omfs_daemon.policy import laws
from omfs_daemon.policy.accounts import Entity, sides
from omfs_daemon.policy.free import Free, Parcel, has_place, parcel
from omfs_daemon.policy.laws import all_over, reaches_at_most
from omfs_daemon.policy.machine import Bools, Ints, Machine
from omfs_daemon.policy.placing import place
from omfs_daemon.policy.pool import Pool
from omfs_daemon.policy.rules import Rules
from omfs_daemon.policy.stopping import takes_fairly, takes_from_borrowers
from omfs_daemon.policy.usage import Usage

WINDOWS = 16
"""Groups of nodes looked at when the victims in turn lie scattered; a bound on the time it takes."""

Pick = Callable[[int], str]


class Need(NamedTuple):
    """What is to become free: ``request`` anywhere, or exactly ``shares``' CPUs for a suspended job.

    ``cpus``: the most that the job will come to hold; ``back``: generic resources per node that a suspended job gave
    up.
    """

    request: Request
    leaf: Entity
    cpus: int
    urgent: bool
    fixed: bool
    shares: tuple[Share, ...] = ()
    back: tuple[tuple[str, int], ...] = ()

    def place(self, free: Free, prefer: Free | None = None, only: Ints | None = None) -> tuple[Share, ...] | None:
        if self.shares:
            return self.shares if has_place(free, self.shares, self.back) else None
        return place(self.request, free, prefer, only)

    def parcel(self, machine: Machine, shares: Sequence[Share]) -> Parcel:
        """What the job takes there: a suspended one has all but its CPUs and what it gave up."""
        if self.shares:
            return parcel(machine, [share._replace(memory=0) for share in shares], self.back)
        return parcel(machine, shares, self.request.gres)


class Choice(NamedTuple):
    """The victims (places in the pool) with their methods, and where the beneficiary then fits."""

    victims: tuple[tuple[int, str], ...]
    shares: tuple[Share, ...]


def choose(need: Need, pool: Pool, free: Free, usage: Usage, rules: Rules) -> Choice | None:
    """The victims for a need that does not fit on what will be ``free``, none of them needless; None if not enough may
    be stopped.

    First with each victim's preferred method; if that frees too little (a suspended job keeps its memory), with the
    one that frees most. First in the order of the rules over all nodes; if the jobs that come first lie so scattered
    that the accounts have given all they must before the job fits anywhere, node by node, the emptiest first.
    """
    machine = free.machine
    least = need.cpus if need.shares else need.request.cpus
    if not need.urgent and least > free.total + pool.mature_cpus:
        return None
    if need.shares:
        touching = pool.on(machine.mask_of(share.node for share in need.shares))
    else:
        touching = pool.on_suitable(machine.suitable(machine.normal(need.request)))
    eligible = pool.alive & touching
    if not need.urgent:
        eligible &= pool.mature & _givers(need, usage)[pool.leaf]
    if least > free.total + int(pool.cpus[eligible].sum()):
        return None
    for pick in (pool.preferred, pool.most_freeing) if pool.has_choice else (pool.preferred,):
        search = _Search(need, pool, free, usage, rules, pick)
        choice = search.over(eligible) or search.by_windows(eligible)
        if choice is not None:
            return choice
    return None


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


class _Search:
    """The search for one need, with one way to pick each victim's method."""

    def __init__(self, need: Need, pool: Pool, free: Free, usage: Usage, rules: Rules, pick: Pick) -> None:
        self.need, self.pool, self.free, self.usage, self.rules, self.pick = need, pool, free, usage, rules, pick

    def over(self, eligible: Bools, only: Ints | None = None) -> Choice | None:
        """The victims in turn among the eligible ones, for a place on these nodes only (None: anywhere)."""
        if self.need.urgent:
            order = _in_turn_for_urgent(self.pool, self.usage, self.rules, eligible)
        else:
            order = _in_turn(self.need, self.pool, self.usage, eligible)
        trial = self.free.copy()
        taken = self._shortest_prefix(trial, order, only)
        return self._without_needless(trial, taken, only) if taken is not None else None

    def by_windows(self, eligible: Bools) -> Choice | None:
        """The same on groups of nodes, from those where the least is to be taken."""
        need, machine = self.need, self.free.machine
        request = machine.normal(need.request)
        unbounded = need.urgent and self.rules.urgent_may_take_entitled
        if unbounded or need.shares or not eligible.any():
            return None
        share = -(-request.cpus // request.nodes)
        by_node = self.pool.cpus_by_node(eligible)
        for suitable in machine.suitable(request):
            nodes = suitable.nodes
            wanted = machine.cpus[nodes] if request.exclusive else np.full(len(nodes), share, dtype=np.int64)
            missing = np.maximum(0, wanted - self.free.cpus[nodes])
            hopeful = missing <= by_node[nodes]
            nodes = nodes[hopeful][np.argsort(missing[hopeful], kind="stable")]
            for first in range(min(WINDOWS, len(nodes) - request.nodes + 1)):
                window = np.sort(nodes[first : first + request.nodes])
                mask = np.zeros(len(machine.names), dtype=bool)
                mask[window] = True
                choice = self.over(eligible & self.pool.on(mask), window)
                if choice is not None:
                    return choice
        return None

    def _parcels(self, taken: Sequence[int]) -> list[Parcel]:
        return [self.pool.parcel(at, self.pick(at)) for at in taken]

    def _shortest_prefix(self, trial: Free, order: Iterator[int], only: Ints | None) -> list[int] | None:
        """As many of the victims in turn as are enough: looked for in doubling steps, then by bisection.

        Leaves them given back in ``trial``.
        """
        taken: list[int] = []
        low = 0
        while self.need.place(trial, only=only) is None:
            low = len(taken) + 1
            more = list(islice(order, max(1, len(taken))))
            if not more:
                return None
            taken += more
            for given in self._parcels(more):
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

    def _move(self, trial: Free, taken: Sequence[int], at: int, to: int) -> None:
        """From the first ``at`` victims given back to the first ``to``."""
        for given in self._parcels(taken[at:to]):
            trial.give(given)
        for given in self._parcels(taken[to:at]):
            trial.take(given)

    def _without_needless(self, trial: Free, taken: Sequence[int], only: Ints | None) -> Choice | None:
        """Settle on nodes, let off everybody elsewhere, then the dearest first wherever the need still fits."""
        need, machine = self.need, self.free.machine
        shares = need.place(trial, self.free, only)
        if shares is None:
            return None
        wanted = machine.indices_of(share.node for share in shares)
        chosen = set(wanted.tolist())
        keep = []
        for at, given in zip(taken, self._parcels(taken), strict=True):
            if any(i in chosen for i, _, _ in given.shares):
                keep.append(at)
            else:
                trial.take(given)
        for at in list(reversed(keep)):
            given = self.pool.parcel(at, self.pick(at))
            trial.take(given)
            if need.place(trial, only=wanted) is None:
                trial.give(given)
            else:
                keep.remove(at)
        final = need.place(trial, self.free, wanted)
        if final is None or not self._is_fair(keep) or not self.pool.have_room(keep, self.pick):
            return None
        return Choice(tuple((at, self.pick(at)) for at in keep), final)

    def _is_fair(self, keep: Sequence[int]) -> bool:
        givers = [(self.pool.leaves[at], int(self.pool.cpus[at])) for at in keep]
        if not self.need.urgent:
            return takes_fairly(self.need.leaf, self.need.cpus, givers, self.usage)
        return self.rules.urgent_may_take_entitled or takes_from_borrowers(givers, self.usage)
