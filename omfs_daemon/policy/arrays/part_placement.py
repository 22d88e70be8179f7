"""Where a heterogeneous job fits: each part on nodes of its own, all at once.

As ``placement.py``, complete and monotone by its own rules, which are simpler. Each part gets a fixed number of nodes,
the least that could do, and the same number of CPUs on each, rounded up. So a node serves a part or does not, whatever
the others get, and who gets which node is a flow from parts to nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise, product
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints, NodeArrays, SuitableNodes

Allocations = tuple[Allocation, ...]

MOST_PARTITIONS = 64
"""The most ways to choose one partition for each part that are tried."""


class _PartNeed(NamedTuple):
    """Nodes that a part needs, CPUs on each, and the (normalized) request."""

    nodes: int
    cpus: int
    request: JobRequest

    def memory(self, cpus: int) -> int:
        return self.request.memory_per_node or self.request.memory_per_cpu * cpus


def place_parts(
    parts: Sequence[JobRequest], free: FreeResources, prefer: FreeResources | None = None, only: Ints | None = None
) -> Allocations | None:
    """The allocations of the parts, one after the other, or None; ``prefer`` and ``only`` as in ``place``."""
    node_arrays = free.node_arrays
    requests = [node_arrays.normalized(part) for part in parts]
    here: Bools = np.ones(len(node_arrays.names), dtype=bool)
    if only is not None:
        here[:] = False
        here[only] = True
    order = np.argsort(free.cpus if prefer is None else -prefer.cpus, kind="stable")
    for partitions in islice(product(*map(node_arrays.suitable, requests)), MOST_PARTITIONS):
        needs = [_need(request, node_arrays, suitable) for request, suitable in zip(requests, partitions, strict=True)]
        known = [need for need in needs if need is not None]
        if len(known) < len(needs):
            continue
        serving = [here & _serving(need, free, suitable) for need, suitable in zip(known, partitions, strict=True)]
        chosen = _nodes_of_parts(known, serving, order, node_arrays)
        if chosen is not None:
            return tuple(_allocations(known, chosen, node_arrays))
    return None


def divided(
    parts: Sequence[JobRequest], allocations: Sequence[Allocation], node_arrays: NodeArrays
) -> list[tuple[JobRequest, Allocations]] | None:
    """Each part with those of the allocations of ``place_parts`` that are its; None if they are not of these parts, or
    of one node twice."""
    named = {allocation.node for allocation in allocations}
    if len(named) < len(allocations):
        return None
    requests = [node_arrays.normalized(part) for part in parts]
    for partitions in islice(product(*map(node_arrays.suitable, requests)), MOST_PARTITIONS):
        needs = [_need(request, node_arrays, suitable) for request, suitable in zip(requests, partitions, strict=True)]
        counts = [need.nodes if need is not None else 0 for need in needs]
        if all(counts) and sum(counts) == len(allocations):
            ends = np.cumsum(counts).tolist()
            found = [tuple(allocations[end - count : end]) for end, count in zip(ends, counts, strict=True)]
            return list(zip(parts, found, strict=True))
    return None


def _need(request: JobRequest, node_arrays: NodeArrays, suitable: SuitableNodes) -> _PartNeed | None:
    """None if no such nodes could do; whatever is free."""
    if not len(suitable.nodes):
        return None
    nodes = max(request.nodes, -(-request.cpus // max(1, int(node_arrays.cpus[suitable.nodes].max()))))
    if request.max_nodes and nodes > request.max_nodes:
        return None
    return _PartNeed(nodes, max(request.min_cpus_per_node, -(-request.cpus // nodes)), request)


def _serving(need: _PartNeed, free: FreeResources, suitable: SuitableNodes) -> Bools:
    """Which nodes could serve the part."""
    node_arrays, request = free.node_arrays, need.request
    serves = suitable.mask & (free.cpus >= need.cpus)
    if request.exclusive:
        serves &= (free.cpus == node_arrays.cpus) & (free.memory == node_arrays.memory)
        serves &= free.memory >= request.memory_per_cpu * node_arrays.cpus
    serves &= free.memory >= need.memory(need.cpus)
    for name, count in request.gres:
        serves &= free.gres[name] >= count if name in free.gres else False
    return np.asarray(serves, dtype=bool)


def _nodes_of_parts(
    needs: Sequence[_PartNeed], serving: Sequence[Bools], order: Ints, node_arrays: NodeArrays
) -> list[list[int]] | None:
    """The nodes of each part: those that it requires, and others, the first in order."""
    chosen: list[list[int]] = []
    for need, serves in zip(needs, serving, strict=True):
        required = node_arrays.indices_of(need.request.required_nodes)
        if len(required) < len(need.request.required_nodes) or not serves[required].all():
            return None
        chosen.append(required.tolist())
    taken = [node for nodes in chosen for node in nodes]
    if len(set(taken)) < len(taken):
        return None
    number = np.zeros(len(order), dtype=object)  # which parts a node could serve, as bits
    for at, serves in enumerate(serving):
        number[serves] |= 1 << at
    number[taken] = 0
    alike: dict[int, list[int]] = {}
    for node in order.tolist():
        if number[node]:
            alike.setdefault(number[node], []).append(node)
    missing = [need.nodes - len(nodes) for need, nodes in zip(needs, chosen, strict=True)]
    flow = _flow(missing, {parts: len(nodes) for parts, nodes in alike.items()})
    if flow is None:
        return None
    for (part, parts), count in sorted(flow.items()):
        chosen[part] += [alike[parts].pop(0) for _ in range(count)]
    return chosen


def _flow(missing: Sequence[int], kinds: Mapping[int, int]) -> dict[tuple[int, int], int] | None:
    """How many nodes of each kind (the bits of the parts that they could serve) each part gets; None if there are not
    enough. By augmenting paths, the shortest first (Edmonds and Karp 1972)."""
    left, spare = list(missing), dict(kinds)
    flow: dict[tuple[int, int], int] = {}
    for part in range(len(left)):
        while left[part] > 0:
            path = _path(part, spare, flow)
            if path is None:
                return None
            gives = [flow[other, kind] for (_, kind), (other, _) in pairwise(path)]
            amount = min(left[part], spare[path[-1][1]], *gives)
            for at, (taker, kind) in enumerate(path):
                flow[taker, kind] = flow.get((taker, kind), 0) + amount
                if at + 1 < len(path):
                    flow[path[at + 1][0], kind] -= amount
            spare[path[-1][1]] -= amount
            left[part] -= amount
    return flow


def _path(part: int, spare: Mapping[int, int], flow: Mapping[tuple[int, int], int]) -> list[tuple[int, int]] | None:
    """Parts, each with the kind of which it gets nodes: from the one before it in the list, or, the last one, from
    those that are spare."""
    came: dict[int, list[tuple[int, int]]] = {part: []}
    waiting, seen = deque([part]), set[int]()
    while waiting:
        taker = waiting.popleft()
        for kind, count in spare.items():
            if kind in seen or not kind >> taker & 1:
                continue
            seen.add(kind)
            path = [*came[taker], (taker, kind)]
            if count > 0:
                return path
            for (giver, of), given in flow.items():
                if of == kind and given > 0 and giver not in came:
                    came[giver] = path
                    waiting.append(giver)
    return None


def _allocations(
    needs: Sequence[_PartNeed], chosen: Sequence[Sequence[int]], node_arrays: NodeArrays
) -> Iterator[Allocation]:
    for need, nodes in zip(needs, chosen, strict=True):
        for node in sorted(nodes):
            cpus = int(node_arrays.cpus[node]) if need.request.exclusive else need.cpus
            yield Allocation(node_arrays.names[node], cpus, need.memory(cpus))
