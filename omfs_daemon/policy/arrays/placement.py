"""Where a request fits on what is free.

Whatever this says "fits" must fit in Slurm too; where Slurm is cleverer (sockets, topology, unequal shares of a fixed
number of nodes), this errs on the side of "does not fit". It is *complete* and *monotone*: it finds a place if there
is one by its own rules, and whatever fits still fits when more is free. The choice of victims rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.policy.arrays.free_resources import Free
from omfs_daemon.policy.arrays.free_resources import parcel
from omfs_daemon.policy.arrays.node_arrays import Ints

Shares = tuple[Share, ...]


def place(request: Request, free: Free, prefer: Free | None = None, only: Ints | None = None) -> Shares | None:
    """The shares on which the request fits, or None.

    ``prefer``: nodes on which this has more free come first (else the fullest ones, so that large holes stay).
    ``only``: indices of the nodes to look at, ascending.
    """
    if request.cpus > free.total or (only is None and free.refused.covers(request)):
        return None
    normal = free.machine.normal(request)
    for suitable in free.machine.suitable(normal):
        nodes = suitable.nodes if only is None else only[suitable.mask[only]]
        shares = _within(normal, free, nodes, prefer)
        if shares is not None:
            return shares
    if only is None:
        free.refused.add(request)
    return None


def serves(request: Request, free: Free, shares: Sequence[Share]) -> bool:
    """Whether exactly these shares are what the request asks for, and are free."""
    machine = free.machine
    request = machine.normal(request)
    nodes = machine.indices_of(share.node for share in shares)
    cpus = sum(share.cpus for share in shares)
    least = max(1, request.min_cpus_per_node)
    if len(nodes) != len(shares) or len(nodes) < request.nodes or cpus < request.cpus:
        return False
    if request.max_nodes and len(nodes) > request.max_nodes:
        return False
    if any(share.cpus < least or share.memory < _memory(request, share.cpus) for share in shares):
        return False
    if not request.required_nodes <= {share.node for share in shares}:
        return False
    if not any(suitable.mask[nodes].all() for suitable in machine.suitable(request)):
        return False
    if request.exclusive and not _whole(free, nodes).all():
        return False
    return free.has(parcel(machine, shares, request.gres))


def _memory(request: Request, cpus: int) -> int:
    return request.memory_per_node or cpus * request.memory_per_cpu


def _whole(free: Free, nodes: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of the nodes nobody is on; a suspended job's memory keeps its node from being whole."""
    machine = free.machine
    whole = (free.cpus[nodes] == machine.cpus[nodes]) & (free.memory[nodes] == machine.memory[nodes])
    return np.asarray(whole, dtype=bool)


def _within(request: Request, free: Free, nodes: Ints, prefer: Free | None) -> Shares | None:
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


def _required(request: Request, free: Free, nodes: Ints) -> Ints | None:
    """1 at each node that the request names, else 0; None if one that it names is not among the nodes."""
    if not request.required_nodes:
        return np.zeros(len(nodes), dtype=np.int64)
    named = free.machine.mask_of(request.required_nodes)[nodes]
    return named.astype(np.int64) if int(named.sum()) == len(request.required_nodes) else None


def _whole_nodes(request: Request, free: Free, nodes: Ints, usable: Ints, required: Ints) -> Shares | None:
    """Whole nodes, the largest first, as many as the CPUs need; its memory counts for each of a node's CPUs."""
    whole = usable == free.machine.cpus[nodes]
    nodes, usable, required = nodes[whole], usable[whole], required[whole]
    order = np.lexsort((nodes, -usable, -required))
    enough = int(np.searchsorted(np.cumsum(usable[order]), request.cpus)) + 1
    count = max(enough, request.nodes)
    if count > len(order) or (request.max_nodes and count > request.max_nodes):
        return None
    if request.required_nodes and int(required.sum()) < len(request.required_nodes):
        return None
    machine = free.machine
    chosen = [int(i) for i in nodes[order[:count]]]
    return _shares(request, free, chosen, [int(machine.cpus[i]) for i in chosen])


def _evenly(request: Request, free: Free, nodes: Ints, usable: Ints, by: Ints, required: Ints) -> Shares | None:
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
        return _shares(request, free, [int(nodes[fitting[np.argmin(by[fitting])]])], [base])
    order = np.lexsort((nodes, by, -required))
    high = order[usable[order] > base][:more]
    left = usable >= base
    left[high] = False
    low = order[left[order]][: request.nodes - more]
    chosen = np.concatenate((high, low))
    if len(high) < more or len(chosen) < request.nodes or required[chosen].sum() < required.sum():
        return None
    amounts = [base + 1] * len(high) + [base] * len(low)
    return _shares(request, free, [int(i) for i in nodes[chosen]], amounts)


def _unevenly(request: Request, free: Free, nodes: Ints, usable: Ints, required: Ints) -> Shares | None:
    """Where the number of nodes is open: as few as will do, the emptiest first."""
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
    return _shares(request, free, [int(i) for i in nodes[order[:count]]], amounts)


def _shares(request: Request, free: Free, nodes: Iterable[int], cpus: Iterable[int]) -> Shares:
    names = free.machine.names
    return tuple(Share(names[i], count, _memory(request, count)) for i, count in zip(nodes, cpus, strict=True))
