"""The nodes on which it costs least to free what a real-time job needs of each, one after the other.

A job on several nodes costs each of them its part, by CPUs. So the sum over a group of nodes is never more than what
freeing all of them costs, and it is exactly that if each job is chosen on all nodes on which it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources
from omfs_daemon.policy.arrays.job_arrays import Floats
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.node_order import wanted_of_each
from omfs_daemon.policy.victims.victim_costs import VictimCosts

MOST_ON_NODE = 256
"""The most jobs of one node that are looked at, the cheapest per CPU first."""
STEPS = 512
"""The most sets that are tried on one node beyond the first; then the cheapest so far is taken for the least."""

Amounts = tuple[int, ...]


class NodeVictims(NamedTuple):
    """The jobs (indices of candidates) that would give way on a node, and their parts of their costs, in sum."""

    cost: float
    node: int
    jobs: tuple[int, ...]


class CheapestNodes:
    """Of the nodes of ``mask``, for a (normalized) request; ``eligible``: which candidates may give way."""

    def __init__(
        self,
        request: JobRequest,
        mask: Bools,
        eligible: Bools,
        costs: VictimCosts,
        candidates: Candidates,
        free: FreeResources,
    ) -> None:
        self._request, self._costs, self._candidates, self._free = request, costs, candidates, free
        self._cpus, self._memory = wanted_of_each(request, free)
        on = costs.on_nodes
        at = np.flatnonzero(eligible[on.owners] & mask[on.nodes])
        self._nodes, self._owners, self._shares, cpus = on.nodes[at], on.owners[at], costs.shares[at], on.cpus[at]
        self._bound = self._least_possible(mask, cpus)

    def __iter__(self) -> Iterator[NodeVictims]:
        """Those on which enough can be freed, the cheapest one first. A node is searched only when it is not certain
        that another is cheaper."""
        searched: list[NodeVictims] = []
        possible = np.flatnonzero(np.isfinite(self._bound))
        for node in possible[np.argsort(self._bound[possible], kind="stable")].tolist():
            while searched and searched[0].cost <= self._bound[node]:
                yield heappop(searched)
            found = self._cheapest_on(node)
            if found is not None:
                heappush(searched, found)
        while searched:
            yield heappop(searched)

    def _least_possible(self, mask: Bools, cpus: Ints) -> Floats:
        """By node, what freeing its CPUs costs if jobs gave parts of theirs, but at least that of the cheapest one;
        infinite if there are not enough."""
        lacking = self._cpus - self._free.cpus
        mask = mask & (self._free.node_arrays.memory >= self._memory)
        for name, count in self._request.gres:
            mask = mask & (self._free.node_arrays.gres.get(name, np.zeros(len(mask))) >= count)
        bound: Floats = np.where(mask & (lacking <= 0), 0.0, np.inf)
        if not len(self._nodes):
            return bound
        first = np.flatnonzero(np.diff(self._nodes, prepend=-1))
        freed, paid = _sums_within(cpus, first), _sums_within(self._shares, first)
        lacks = lacking[self._nodes]
        enough = freed >= lacks
        # On each node the first with which they are enough.
        reached = enough & ~np.concatenate(([False], enough[:-1]))
        reached[first] = enough[first]
        last = np.flatnonzero(reached & (lacks > 0) & mask[self._nodes])
        parts = paid[last] - (freed[last] - lacks[last]) * self._shares[last] / np.maximum(1, cpus[last])
        least: Floats = np.full(len(mask), np.inf)
        least[self._nodes[first]] = np.minimum.reduceat(self._shares, first)
        bound[self._nodes[last]] = np.maximum(parts, least[self._nodes[last]])
        return bound

    def _cheapest_on(self, node: int) -> NodeVictims | None:
        """The jobs of least cost that free enough CPUs, memory, and generic resources there."""
        lacking = self._lacking(node)
        begin, end = np.searchsorted(self._nodes, (node, node + 1)).tolist()
        jobs = self._owners[begin:end][:MOST_ON_NODE].tolist()
        costs = self._shares[begin:end][:MOST_ON_NODE].tolist()
        found = cheapest_cover(lacking, [(cost, self._freed(job, node)) for cost, job in zip(costs, jobs, strict=True)])
        if found is None:
            return None
        cost, chosen = found
        return NodeVictims(cost, node, tuple(jobs[at] for at in chosen))

    def _lacking(self, node: int) -> Amounts:
        free, gres = self._free, self._request.gres
        return (
            int(self._cpus[node] - free.cpus[node]),
            int(self._memory[node] - free.memory[node]),
            *(count - int(free.gres[name][node]) for name, count in gres),
        )

    def _freed(self, at: int, node: int) -> Amounts:
        given = self._candidates.freed_by(at, self._costs.pick(at))
        cpus, memory = next(((cpus, memory) for i, cpus, memory in given.allocations if i == node), (0, 0))
        if not self._request.gres:
            return cpus, memory
        same = self._free.node_arrays.same_gres
        return cpus, memory, *(sum(n for own, n in given.gres if name in same(own)) for name, _ in self._request.gres)


def cheapest_cover(
    lacking: Amounts, givers: Sequence[tuple[float, Amounts]], steps: int = STEPS
) -> tuple[float, tuple[int, ...]] | None:
    """The cost and the indices of the givers of least cost that together give what is lacking; None if all are not
    enough. ``givers``: of each, its cost and what it gives. By branch and bound: the dearest are spared first."""
    order = sorted(range(len(givers)), key=lambda at: -givers[at][0])
    # What those from each place on give together, and the least that one of them costs per CPU.
    rests: list[Amounts] = [(0,) * len(lacking)]
    rates = [inf]
    for at in reversed(order):
        cost, amounts = givers[at]
        rests.append(tuple(map(sum, zip(rests[-1], amounts, strict=True))))
        rates.append(min(rates[-1], cost / max(1, amounts[0])))
    rests.reverse()
    rates.reverse()
    best: tuple[float, tuple[int, ...]] | None = None
    open_sets: list[tuple[int, Amounts, float, tuple[int, ...]]] = [(0, lacking, 0.0, ())]
    for _ in range(steps + 2 * len(givers) + 1):
        if not open_sets:
            break
        at, left, cost, chosen = open_sets.pop()
        most = inf if best is None else best[0]
        if max(left) <= 0:
            best = (cost, chosen) if cost < most else best
            continue
        least = cost + left[0] * rates[at] if left[0] > 0 else cost
        if least >= most or any(one > rest for one, rest in zip(left, rests[at], strict=True)):
            continue
        price, amounts = givers[order[at]]
        given = tuple(one - amount for one, amount in zip(left, amounts, strict=True))
        open_sets.append((at + 1, given, cost + price, (*chosen, order[at])))
        open_sets.append((at + 1, left, cost, chosen))
    return best


def groups_of(nodes: Iterator[NodeVictims], count: int) -> Iterator[tuple[NodeVictims, ...]]:
    """All groups of so many of these nodes, which come by cost: those of the least sum first."""
    known: list[NodeVictims] = []

    def is_known(at: int) -> bool:
        known.extend(islice(nodes, max(0, at + 1 - len(known))))
        return at < len(known)

    if not is_known(count - 1):
        return
    seen = {tuple(range(count))}
    ahead = [(sum(one.cost for one in known), group) for group in seen]
    while ahead:
        _, group = heappop(ahead)
        yield tuple(known[at] for at in group)
        for i, at in enumerate(group):
            following = (*group[:i], at + 1, *group[i + 1 :])
            if at + 1 not in group and is_known(at + 1) and following not in seen:
                seen.add(following)
                heappush(ahead, (sum(known[at].cost for at in following), following))


def _sums_within(values: Ints | Floats, first: Ints) -> Floats:
    """Running sums that begin anew at each index of ``first``, which has 0."""
    total = np.cumsum(values.astype(np.float64))
    lengths = np.diff(np.append(first, len(values)))
    sums: Floats = total - np.repeat(total[first] - values[first], lengths)
    return sums
