"""Which of them are chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
import numpy as np
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.policy.arrays.free_resources import Free
from omfs_daemon.policy.arrays.free_resources import Parcel
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.victims.candidates import Pool
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.victims.eligibility import takes_fairly
from omfs_daemon.policy.victims.eligibility import takes_from_borrowers
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.victims.need import Need
from omfs_daemon.policy.victims.order import _givers
from omfs_daemon.policy.victims.order import _in_turn
from omfs_daemon.policy.victims.order import _in_turn_for_urgent

WINDOWS = 16
"""Groups of nodes looked at when the victims in turn lie scattered; a bound on the time it takes."""

Pick = Callable[[int], str]


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
