"""What is free on each node at one instant: CPUs, bytes of memory, generic resources; and which suspended jobs cannot
be resumed, however much is free, because others have their own CPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest
from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.cluster.units import ResumeBlocks
from omfs_daemon.policy.arrays.node_arrays import Ints, NodeArrays


class JobResources(NamedTuple):
    """What one job takes or frees: ``(index of node, CPUs, bytes)``, and generic resources on each node.

    ``blocks``: suspended jobs that cannot be resumed meanwhile (``cluster/units.py``). ``parts``: of a heterogeneous
    job, the indices of the nodes of each part, and its generic resources on each of them.
    """

    allocations: tuple[tuple[int, int, int], ...]
    gres: tuple[tuple[str, int], ...]
    blocks: frozenset[str] = frozenset()
    parts: tuple[tuple[tuple[int, ...], tuple[tuple[str, int], ...]], ...] = ()

    @property
    def gres_by_nodes(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Generic resources, how many on each node, and on which nodes."""
        if self.gres:
            nodes = tuple(i for i, _, _ in self.allocations)
            yield from ((name, count, nodes) for name, count in self.gres)
        for nodes, gres in self.parts:
            yield from ((name, count, nodes) for name, count in gres)


def job_resources(
    node_arrays: NodeArrays,
    allocations: Iterable[Allocation],
    gres: tuple[tuple[str, int], ...],
    blocks: frozenset[str] = frozenset(),
) -> JobResources:
    """The resources on nodes that work; nothing can be used on the others."""
    index, works = node_arrays.index, node_arrays.works
    found = []
    for node, cpus, memory in allocations:
        i = index.get(node)
        if i is not None and works[i]:
            found.append((i, cpus, memory))
    return JobResources(tuple(found), gres, blocks)


def of_parts(
    node_arrays: NodeArrays, parts: Iterable[tuple[Iterable[Allocation], tuple[tuple[str, int], ...]]]
) -> JobResources:
    """The resources of a heterogeneous job: what each part has where, and its generic resources on each node."""
    found = [job_resources(node_arrays, allocations, gres) for allocations, gres in parts]
    return JobResources(
        tuple(allocation for part in found for allocation in part.allocations),
        (),
        parts=tuple((tuple(i for i, _, _ in part.allocations), part.gres) for part in found if part.gres),
    )


def held_resources(node_arrays: NodeArrays, job: Job) -> JobResources:
    """What a job has on its nodes."""
    if job.parts:
        return of_parts(node_arrays, ((part.allocations, part.request.gres) for part in job.parts))
    return job_resources(node_arrays, job.allocations, job.request.gres)


def freed_resources(
    node_arrays: NodeArrays, job: Job, method: MethodTraits | None, blocks: ResumeBlocks
) -> JobResources:
    """What a running job frees when it is preempted by this method (None: when it ends).

    A job that stays, suspended, keeps its memory and generic resources in Slurm; of the node licenses
    (docs/node-licenses.md) it gives up those that the method frees.
    """
    blocked = blocks.by_job.get(job.id, frozenset())
    if method is None or method.leaves:
        return held_resources(node_arrays, job)._replace(blocks=blocked)
    here = [allocation._replace(memory=0) for allocation in job.allocations]
    return job_resources(node_arrays, here, freed_gres(job, method), blocked)


def freed_gres(job: Job, method: MethodTraits) -> tuple[tuple[str, int], ...]:
    """The node licenses that the method frees although the job stays on its nodes."""
    return tuple((name, count) for name, count in job.request.gres if name.partition("/")[0] in method.frees)


def has_place(
    free: FreeResources, ref: str, allocations: Sequence[Allocation], gres: tuple[tuple[str, int], ...]
) -> bool:
    """Whether a suspended job could resume: its CPUs and the ``gres`` it gave up are free; it still has its memory.

    Also where Slurm starts no other jobs: an administrator who drains a node waits until its jobs have ended.
    """
    node_arrays = free.node_arrays
    index = node_arrays.index
    if free.blocked[ref] > 0:
        return False
    return all(
        allocation.node in index
        and bool(node_arrays.works[index[allocation.node]])
        and free.cpus[index[allocation.node]] >= allocation.cpus
        for allocation in allocations
    ) and all(
        name in free.gres and free.gres[name][index[allocation.node]] >= count
        for name, count in gres
        for allocation in allocations
    )


class FreeResources:
    """The free resources of all nodes.

    Counts go below zero where more is taken than there is, so that it can be given back; ``total`` counts free CPUs of
    nodes that are up; ``blocked``: by how many jobs each suspended job is kept from being resumed.
    """

    def __init__(
        self, node_arrays: NodeArrays, cpus: Ints, memory: Ints, gres: dict[str, Ints], blocked: Counter[str]
    ) -> None:
        self.node_arrays, self.cpus, self.memory, self.gres = node_arrays, cpus, memory, gres
        self.blocked = blocked
        self.total = int(np.maximum(cpus, 0)[node_arrays.up].sum())
        self.refused = RefusedRequests()

    def copy(self) -> FreeResources:
        return FreeResources(
            self.node_arrays,
            self.cpus.copy(),
            self.memory.copy(),
            {name: free.copy() for name, free in self.gres.items()},
            self.blocked.copy(),
        )

    def emptied(self) -> FreeResources:
        """The same nodes with nothing free."""
        gres = {name: np.zeros_like(free) for name, free in self.gres.items()}
        none = np.zeros_like(self.cpus), np.zeros_like(self.memory)
        return FreeResources(self.node_arrays, *none, gres, self.blocked.copy())

    def take(self, taken: JobResources) -> None:
        """What did not fit before still does not, so refused requests stay known."""
        self._move(taken, -1)

    def give(self, given: JobResources) -> None:
        self._move(given, +1)
        self.refused.clear()

    def _move(self, moved: JobResources, sign: int) -> None:
        for i, cpus, memory in moved.allocations:
            before = self.cpus.item(i)
            self.cpus[i] = after = before + sign * cpus
            if self.node_arrays.up[i]:
                self.total += (after if after > 0 else 0) - (before if before > 0 else 0)
            if memory:
                self.memory[i] += sign * memory
        for name, count, nodes in moved.gres_by_nodes if moved.gres or moved.parts else ():
            for known in self.node_arrays.same_gres(name):
                free = self.gres[known]
                for i in nodes:
                    free[i] += sign * count
        for ref in moved.blocks:
            self.blocked[ref] -= sign

    def cap(self, other: FreeResources, nodes: Iterable[int]) -> None:
        """Limit these nodes to what is free in ``other``."""
        for i in nodes:
            cpus = min(int(self.cpus[i]), int(other.cpus[i]))
            self.total += (max(0, cpus) - max(0, int(self.cpus[i]))) * bool(self.node_arrays.up[i])
            self.cpus[i] = cpus
            self.memory[i] = min(self.memory[i], other.memory[i])
            for name, free in self.gres.items():
                free[i] = min(free[i], other.gres[name][i])
        self.blocked |= other.blocked

    def has(self, wanted: JobResources) -> bool:
        """Whether all of this is free."""
        return all(self.cpus[i] >= cpus and self.memory[i] >= memory for i, cpus, memory in wanted.allocations) and all(
            name in self.gres and all(self.gres[name][i] >= count for i in nodes)
            for name, count, nodes in wanted.gres_by_nodes
        )


class RefusedRequests:
    """Requests that did not fit, so that requests for as much or more need not be tried.

    Only requests that differ in nothing but CPUs and memory are compared: more nodes may fit where fewer do not.
    """

    def __init__(self) -> None:
        self._least: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}

    def covers(self, request: JobRequest) -> bool:
        if not self._least:
            return False
        least = self._least.get(_signature(request))
        if least is None:
            return False
        cpus, per_cpu, per_node = request.cpus, request.memory_per_cpu, request.memory_per_node
        return any(cpus >= c and per_cpu >= p and per_node >= n for c, p, n in least)

    def add(self, request: JobRequest) -> None:
        size = (request.cpus, request.memory_per_cpu, request.memory_per_node)
        key = _signature(request)
        kept = [
            known
            for known in self._least.get(key, ())
            if not all(mine <= other for mine, other in zip(size, known, strict=True))
        ]
        self._least[key] = [*kept, size]

    def clear(self) -> None:
        self._least.clear()


def _signature(request: JobRequest) -> tuple[object, ...]:
    return (
        request.nodes,
        request.max_nodes,
        request.min_cpus_per_node,
        request.gres,
        request.features,
        request.exclusive,
        request.partitions,
        request.required_nodes,
        request.excluded_nodes,
        request.parts,
    )


def all_resources(node_arrays: NodeArrays) -> FreeResources:
    """As if nothing ran on any node."""
    cpus = np.where(node_arrays.works, node_arrays.cpus, 0)
    gres = {name: total.copy() for name, total in node_arrays.gres.items()}
    return FreeResources(node_arrays, cpus, node_arrays.memory.copy(), gres, Counter())
