"""Where a request fits on free resources.

What fits here must fit in Slurm too; where Slurm knows more (sockets, topology, uneven allocations on a fixed number of
nodes), this errs toward "does not fit". It is *complete* and *monotone*: it finds a placement if its own rules allow
one, and what fits still fits when more is free. The choice of victims depends on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources, job_resources
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.part_placement import divided, place_parts

Allocations = tuple[Allocation, ...]


def place(
    request: JobRequest, free: FreeResources, prefer: FreeResources | None = None, only: Ints | None = None
) -> Allocations | None:
    """The allocations on which the request fits, or None.

    ``prefer``: nodes with more free CPUs in it come first (default: the fullest nodes first, which keeps large gaps).
    ``only``: indices of the nodes to consider, ascending.
    """
    if request.cpus > free.total or (only is None and free.refused.covers(request)):
        return None
    if request.parts:
        return place_parts(request.parts, free, prefer, only)
    normalized = free.node_arrays.normalized(request)
    for suitable in free.node_arrays.suitable(normalized):
        nodes = suitable.nodes if only is None else only[suitable.mask[only]]
        allocations = _within(normalized, free, nodes, prefer)
        if allocations is not None:
            return allocations
    if only is None:
        free.refused.add(request)
    return None


def serves(request: JobRequest, free: FreeResources, allocations: Sequence[Allocation]) -> bool:
    """Whether these allocations satisfy the request and are free."""
    node_arrays = free.node_arrays
    if request.parts:
        parts = divided(request.parts, allocations, node_arrays)
        return parts is not None and all(serves(part, free, given) for part, given in parts)
    request = node_arrays.normalized(request)
    nodes = node_arrays.indices_of(allocation.node for allocation in allocations)
    cpus = sum(allocation.cpus for allocation in allocations)
    least = max(1, request.min_cpus_per_node)
    if len(nodes) != len(allocations) or len(nodes) < request.nodes or cpus < request.cpus:
        return False
    if request.max_nodes and len(nodes) > request.max_nodes:
        return False
    if any(
        allocation.cpus < least or allocation.memory < _memory(request, allocation.cpus) for allocation in allocations
    ):
        return False
    if not request.required_nodes <= {allocation.node for allocation in allocations}:
        return False
    if not any(suitable.mask[nodes].all() for suitable in node_arrays.suitable(request)):
        return False
    if request.exclusive and not _whole(free, nodes).all():
        return False
    return free.has(job_resources(node_arrays, allocations, request.gres))


def _memory(request: JobRequest, cpus: int) -> int:
    return request.memory_per_node or cpus * request.memory_per_cpu


def _whole(free: FreeResources, nodes: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the nodes are empty; the memory of a suspended job counts as used."""
    node_arrays = free.node_arrays
    whole = (free.cpus[nodes] == node_arrays.cpus[nodes]) & (free.memory[nodes] == node_arrays.memory[nodes])
    return np.asarray(whole, dtype=bool)


def _within(request: JobRequest, free: FreeResources, nodes: Ints, prefer: FreeResources | None) -> Allocations | None:
    least = max(1, request.min_cpus_per_node)
    if request.nodes >= request.max_nodes > 0 and not request.exclusive:
        least = max(least, request.cpus // request.nodes)  # evenly or not at all
    nodes = nodes[free.cpus[nodes] >= least]
    if request.memory_per_node:
        nodes = nodes[free.memory[nodes] >= request.memory_per_node]
    for name, count in request.gres:
        if name not in free.gres:
            return None
        nodes = nodes[free.gres[name][nodes] >= count]
    if request.exclusive:
        nodes = nodes[_whole(free, nodes)]
    usable = free.cpus[nodes]
    if request.memory_per_cpu:
        usable = np.minimum(usable, np.maximum(free.memory[nodes], 0) // request.memory_per_cpu)
        nodes, usable = nodes[usable >= least], usable[usable >= least]
    if len(nodes) < request.nodes:
        return None
    required = _required(request, free, nodes)
    if required is None:
        return None
    if request.exclusive:
        return _whole_nodes(request, free, nodes, usable, required)
    by = -prefer.cpus[nodes] if prefer is not None else usable
    return _evenly(request, free, nodes, usable, by, required) or _unevenly(request, free, nodes, usable, required)


def _required(request: JobRequest, free: FreeResources, nodes: Ints) -> Ints | None:
    """1 for each node that the request names, else 0; None if one of these is not among the nodes."""
    if not request.required_nodes:
        return np.zeros(len(nodes), dtype=np.int64)
    named = free.node_arrays.mask_of(request.required_nodes)[nodes]
    return named.astype(np.int64) if int(named.sum()) == len(request.required_nodes) else None


def _whole_nodes(
    request: JobRequest, free: FreeResources, nodes: Ints, usable: Ints, required: Ints
) -> Allocations | None:
    """Whole nodes, the largest first, as many as the CPUs need; memory per CPU counts for every CPU of a node."""
    whole = usable == free.node_arrays.cpus[nodes]
    nodes, usable, required = nodes[whole], usable[whole], required[whole]
    order = np.lexsort((nodes, -usable, -required))
    enough = int(np.searchsorted(np.cumsum(usable[order]), request.cpus)) + 1
    count = max(enough, request.nodes)
    if count > len(order) or (request.max_nodes and count > request.max_nodes):
        return None
    if request.required_nodes and int(required.sum()) < len(request.required_nodes):
        return None
    node_arrays = free.node_arrays
    chosen = [int(i) for i in nodes[order[:count]]]
    return _allocations(request, free, chosen, [int(node_arrays.cpus[i]) for i in chosen])


def _evenly(
    request: JobRequest, free: FreeResources, nodes: Ints, usable: Ints, by: Ints, required: Ints
) -> Allocations | None:
    """The same number of CPUs on each node, one more on some."""
    base, more = divmod(request.cpus, request.nodes)
    if base < max(1, request.min_cpus_per_node):
        return None
    if request.nodes == 1:
        fitting = np.flatnonzero(usable >= base)
        if request.required_nodes:
            fitting = fitting[required[fitting] == 1]
        if not len(fitting):
            return None
        return _allocations(request, free, [int(nodes[fitting[np.argmin(by[fitting])]])], [base])
    order = np.lexsort((nodes, by, -required))
    high = order[usable[order] > base][:more]
    left = usable >= base
    left[high] = False
    low = order[left[order]][: request.nodes - more]
    chosen = np.concatenate((high, low))
    if len(high) < more or len(chosen) < request.nodes or required[chosen].sum() < required.sum():
        return None
    amounts = [base + 1] * len(high) + [base] * len(low)
    return _allocations(request, free, [int(i) for i in nodes[chosen]], amounts)


def _unevenly(
    request: JobRequest, free: FreeResources, nodes: Ints, usable: Ints, required: Ints
) -> Allocations | None:
    """For a variable number of nodes: as few as possible, the emptiest first."""
    if request.max_nodes and request.max_nodes <= request.nodes:
        return None
    least = max(1, request.min_cpus_per_node)
    order = np.lexsort((nodes, -usable, -required))
    enough = int(np.searchsorted(np.cumsum(usable[order]), request.cpus)) + 1
    count = max(enough, request.nodes)
    if count > len(order) or count * least > request.cpus or (request.max_nodes and count > request.max_nodes):
        return None
    left, amounts = request.cpus - count * least, []
    for room in usable[order[:count]]:
        extra = min(left, int(room) - least)
        amounts.append(least + extra)
        left -= extra
    return _allocations(request, free, [int(i) for i in nodes[order[:count]]], amounts)


def _allocations(request: JobRequest, free: FreeResources, nodes: Iterable[int], cpus: Iterable[int]) -> Allocations:
    names = free.node_arrays.names
    return tuple(Allocation(names[i], count, _memory(request, count)) for i, count in zip(nodes, cpus, strict=True))
