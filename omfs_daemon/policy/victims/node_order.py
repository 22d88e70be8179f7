"""The nodes on which a preemptor could run, first those whose victims come first in the order of the rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.policy.arrays.free_resources import FreeResources
from omfs_daemon.policy.arrays.job_arrays import RunningAllocations
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints, SuitableNodes
from omfs_daemon.policy.victims.candidates import Candidates


class TakingOrder(NamedTuple):
    """What a preemptor may take, by candidate: ``place`` in the order of the rules, whether it is ``eligible``, and
    the ``surplus`` of its account: how many CPUs it may be above its entitlement by.

    ``by_node``: their allocations by node, and by place on each node.
    """

    by_node: RunningAllocations
    place: Ints
    eligible: Bools
    surplus: Ints


def nodes_in_order(
    request: JobRequest,
    suitable: SuitableNodes,
    candidates: Candidates,
    free: FreeResources,
    taking: TakingOrder,
    pick_frees_memory: Bools,
) -> Ints:
    """The suitable nodes that can be freed for one node's part of the (normalized) request, in the order of the last
    victim that this takes on each of them; nodes without any come first.

    Each node is looked at by itself: an account gives there for as long as it is above its entitlement.
    """
    found = taking.by_node
    cpus, memory = wanted_of_each(request, free)
    here = taking.eligible[found.owners] & suitable.mask[found.nodes]
    at_most = free.cpus + np.bincount(found.nodes[here], found.cpus[here], len(free.cpus)).astype(np.int64)
    here &= (at_most >= cpus)[found.nodes]
    at = np.flatnonzero(here)
    at = at[_gives(found.nodes[at], found.owners[at], candidates, taking)]
    nodes, owners, place = found.nodes[at], found.owners[at], taking.place[found.owners[at]]
    last = np.where(suitable.mask, np.int64(-1), _NEVER)
    last = np.maximum(last, _last(cpus - free.cpus, nodes, found.cpus[at], place))
    frees = np.where(pick_frees_memory[owners], found.memory[at], 0)
    last = np.maximum(last, _last(memory - free.memory, nodes, frees, place))
    for name, count in request.gres:
        if name not in free.gres:
            return np.zeros(0, dtype=np.int64)
        freed = np.where(pick_frees_memory, candidates.gres(name), 0)[owners]
        last = np.maximum(last, _last(count - free.gres[name], nodes, freed, place))
    found_nodes: Ints = np.flatnonzero(last < _NEVER)
    ordered: Ints = found_nodes[np.argsort(last[found_nodes], kind="stable")]
    return ordered


_NEVER = np.int64(1 << 62)


def _gives(nodes: Ints, owners: Ints, candidates: Candidates, taking: TakingOrder) -> Bools:
    """Which of these jobs, by node and place, an account can give on the node before it reaches its entitlement."""
    leaf = candidates.leaf[owners]
    order = np.argsort(nodes * (int(candidates.leaf.max(initial=0)) + 1) + leaf, kind="stable")
    cpus = candidates.cpus[owners[order]]
    given = np.cumsum(cpus) - cpus
    first = (np.diff(nodes[order], prepend=-1) != 0) | (np.diff(leaf[order], prepend=-1) != 0)
    given -= np.maximum.accumulate(np.where(first, given, 0))
    gives: Bools = np.zeros(len(nodes), dtype=bool)
    gives[order] = given < taking.surplus[owners[order]]
    return gives


def wanted_of_each(request: JobRequest, free: FreeResources) -> tuple[Ints, Ints]:
    """The CPUs and bytes that the request needs of each node, if its CPUs are spread evenly."""
    node_arrays = free.node_arrays
    if request.exclusive:
        return node_arrays.cpus, node_arrays.memory
    cpus = max(1, request.min_cpus_per_node, request.cpus // request.nodes)
    memory = request.memory_per_node or cpus * request.memory_per_cpu
    return np.full(len(node_arrays.names), cpus), np.full(len(node_arrays.names), memory)


def _last(lacking: Ints, nodes: Ints, freed: Ints, place: Ints) -> Ints:
    """By node: the place of the victim with which enough is freed; -1 if nothing lacks, ``_NEVER`` if it never is.

    ``nodes``: ascending, of each victim, by place on each node; ``freed``: what it frees there.
    """
    last: Ints = np.where(lacking > 0, _NEVER, np.int64(-1))
    if not len(nodes):
        return last
    total = np.cumsum(freed)
    first = np.diff(nodes, prepend=-1) != 0
    before = np.maximum.accumulate(np.where(first, total - freed, 0))
    enough = (total - before >= lacking[nodes]) & (lacking[nodes] > 0)
    np.minimum.at(last, nodes[enough], place[enough])
    return last
