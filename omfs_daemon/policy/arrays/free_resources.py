"""What is free on every node at one moment: CPUs, bytes, generic resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.node_arrays import Machine


class Parcel(NamedTuple):
    """What one job takes or gives back: ``(index of node, CPUs, bytes)``, and generic resources on each node."""

    shares: tuple[tuple[int, int, int], ...]
    gres: tuple[tuple[str, int], ...]


def parcel(machine: Machine, shares: Iterable[Share], gres: tuple[tuple[str, int], ...]) -> Parcel:
    """Nodes that are not up have nothing to give, so they are left out."""
    index, up = machine.index, machine.up
    found = []
    for node, cpus, memory in shares:
        i = index.get(node)
        if i is not None and up[i]:
            found.append((i, cpus, memory))
    return Parcel(tuple(found), gres)


def parcel_of(machine: Machine, job: Job, way: Method | None) -> Parcel:
    """What a running job gives back when it is stopped in this way (None: when it ends).

    A job that stays, suspended, keeps its memory and generic resources in Slurm's books; of our own books
    (docs/books.md) it gives what the method frees.
    """
    if way is None or way.leaves:
        return parcel(machine, job.shares, job.request.gres)
    return parcel(machine, [share._replace(memory=0) for share in job.shares], freed_gres(job, way))


def freed_gres(job: Job, way: Method) -> tuple[tuple[str, int], ...]:
    """What of our own books the method frees, although the job stays where it is."""
    return tuple((name, count) for name, count in job.request.gres if name.partition("/")[0] in way.frees)


def has_place(free: Free, shares: Sequence[Share], gres: tuple[tuple[str, int], ...]) -> bool:
    """Whether a suspended job could run on where it is: its CPUs are free, and what it had given back besides. Its
    memory is still its own."""
    machine = free.machine
    index = machine.index
    return all(
        share.node in index and bool(machine.up[index[share.node]]) and free.cpus[index[share.node]] >= share.cpus
        for share in shares
    ) and all(
        name in free.gres and free.gres[name][index[share.node]] >= count for name, count in gres for share in shares
    )


class Free:
    """The free part of a machine. Counts may be below zero where books are overdrawn, so that all that is taken can
    be given back; ``total`` counts only what is there."""

    def __init__(self, machine: Machine, cpus: Ints, memory: Ints, gres: dict[str, Ints]) -> None:
        self.machine, self.cpus, self.memory, self.gres = machine, cpus, memory, gres
        self.total = int(np.maximum(cpus, 0).sum())
        self.refused = Frontier()

    def copy(self) -> Free:
        return Free(
            self.machine, self.cpus.copy(), self.memory.copy(), {name: free.copy() for name, free in self.gres.items()}
        )

    def take(self, taken: Parcel) -> None:
        """What did not fit before fits still less, so refusals stay known."""
        self._move(taken, -1)

    def give(self, given: Parcel) -> None:
        self._move(given, +1)
        self.refused.clear()

    def _move(self, moved: Parcel, sign: int) -> None:
        for i, cpus, memory in moved.shares:
            before = int(self.cpus[i])
            after = before + sign * cpus
            self.cpus[i] = after
            self.total += max(0, after) - max(0, before)
            self.memory[i] += sign * memory
        for name, count in moved.gres:
            for known in self.machine.same_gres(name):
                free = self.gres[known]
                for i, _, _ in moved.shares:
                    free[i] += sign * count

    def cap(self, other: Free, nodes: Iterable[int]) -> None:
        """On these nodes, no more than what the other one has."""
        for i in nodes:
            cpus = min(int(self.cpus[i]), int(other.cpus[i]))
            self.total += max(0, cpus) - max(0, int(self.cpus[i]))
            self.cpus[i] = cpus
            self.memory[i] = min(self.memory[i], other.memory[i])
            for name, free in self.gres.items():
                free[i] = min(free[i], other.gres[name][i])

    def has(self, wanted: Parcel) -> bool:
        """Whether exactly this is free."""
        return all(self.cpus[i] >= cpus and self.memory[i] >= memory for i, cpus, memory in wanted.shares) and all(
            name in self.gres and all(self.gres[name][i] >= count for i, _, _ in wanted.shares)
            for name, count in wanted.gres
        )


class Frontier:
    """Requests that did not fit, so that those which ask for as much or more need not be tried.

    Comparable are requests that differ in CPUs and memory only: more nodes may fit where fewer do not.
    """

    def __init__(self) -> None:
        self._least: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}

    def covers(self, request: Request) -> bool:
        if not self._least:
            return False
        least = self._least.get(_signature(request))
        if least is None:
            return False
        cpus, per_cpu, per_node = request.cpus, request.memory_per_cpu, request.memory_per_node
        return any(cpus >= c and per_cpu >= p and per_node >= n for c, p, n in least)

    def add(self, request: Request) -> None:
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


def _signature(request: Request) -> tuple[object, ...]:
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
    )
