"""The fake's nodes: what of them is allocated, and on which of them a job may start.

Cores are bits of an integer, as in Slurm's select plugin, and wrong in the same way: a job that is resumed on cores of
another one shares them, and the first to end frees them for both. GPUs have numbers, as in Slurm where gres.conf names
their files; a suspended job keeps them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Allocation, JobRequest
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.units import CPU, Unit, Units

GPU = "gpu"
NOT_RESPONDING = "NOT_RESPONDING"


class Taken(NamedTuple):
    """What one job has on one node; ``gres`` names every counter that goes down (a typed one and its sum); ``gpus`` are
    bits as ``cores`` are."""

    node: str
    cores: int
    memory: int
    gres: tuple[tuple[str, int], ...]
    gpus: int = 0

    @property
    def allocation(self) -> Allocation:
        return Allocation(self.node, self.cores.bit_count(), self.memory)

    @property
    def units(self) -> Units:
        of_kind = ((CPU, self.cores), (GPU, self.gpus))
        return frozenset(
            Unit(self.node, kind, number)
            for kind, bits in of_kind
            for number in range(bits.bit_length())
            if bits >> number & 1
        )


@dataclass(slots=True)
class FakeNode:
    """One node and what of it is taken. ``completing`` counts jobs whose end is not over: nothing starts here then.

    ``closed``: why no job starts here although the node works, as Slurm names it (``DRAIN``); "" if they do. ``stuck``:
    no job that is completing here ever leaves, because an epilog or slurmd itself hangs. ``silent``: slurmctld has
    started, and the node has not registered with it yet.
    """

    node: Node
    busy: int = 0
    memory: int = 0
    gres: dict[str, int] = field(default_factory=dict)
    completing: int = 0
    gpus: int = 0
    up: bool = True
    closed: str = ""
    stuck: bool = False
    silent: bool = False

    @classmethod
    def empty(cls, node: Node) -> FakeNode:
        return cls(replace(node, cpus_taken=0, memory_taken=0), gres=dict(node.gres), up=node.up)

    def copy(self) -> FakeNode:
        return replace(self, gres=dict(self.gres))

    def reset(self) -> None:
        """Nothing is taken."""
        self.busy = self.memory = self.gpus = self.completing = 0
        self.gres = dict(self.node.gres)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def starts_jobs(self) -> bool:
        return self.up and not self.closed and not self.silent

    @property
    def has_free_cpus(self) -> bool:
        return self.starts_jobs and not self.completing and self.busy.bit_count() < self.node.cpus

    def view(self) -> Node:
        """The node as Slurm shows it."""
        taken = self.busy.bit_count()
        closed = [*filter(None, (self.closed, NOT_RESPONDING if self.silent else ""))]
        return replace(
            self.node,
            up=self.starts_jobs,
            works=self.up and NOT_RESPONDING not in closed,
            silent=self.up and closed == [NOT_RESPONDING],
            state="+".join([self._state(taken), *closed]),
            cpus_taken=taken,
            memory_taken=self.memory,
        )

    def _state(self, taken: int) -> str:
        if not self.up:
            return "DOWN"
        if self.completing:
            return "COMPLETING"
        return "IDLE" if not taken else "MIXED" if taken < self.node.cpus else "ALLOCATED"

    def room(self, request: JobRequest, exclusive: bool) -> int:
        """How many CPUs a job with this request could have here now; 0: none."""
        if not self.starts_jobs or self.completing or self.name in request.excluded_nodes:
            return 0
        if exclusive and self.busy:
            return 0
        cpus = self.node.cpus - self.busy.bit_count()
        free = self.node.memory - self.memory
        if request.memory_per_cpu:
            cpus = min(cpus, max(0, free) // request.memory_per_cpu)
        if cpus < request.min_cpus_per_node or free < request.memory_per_node:
            return 0
        if any(self.gres.get(name, 0) < count for name, count in request.gres):
            return 0
        return cpus if has_features(request.features, self.node.features) else 0

    def take(self, cpus: int, request: JobRequest) -> Taken:
        """Give the lowest free cores and GPUs, memory and GRES to a job."""
        cores = _lowest_free(self.busy, cpus)
        memory = request.memory_per_node + request.memory_per_cpu * cpus
        counters = self._counters(request)
        gpus = _lowest_free(self.gpus, dict(counters).get(GPU, 0))
        taken = Taken(self.name, cores, memory, counters, gpus)
        self.busy |= cores
        self.gpus |= gpus
        self.memory += memory
        for name, count in taken.gres:
            self.gres[name] -= count
        return taken

    def give_back(self, taken: Taken, cores: bool = True) -> None:
        """Free what a job has here; ``cores`` is False for a suspended one, whose cores are free already."""
        if cores:
            self.busy &= ~taken.cores
        self.gpus &= ~taken.gpus
        self.memory -= taken.memory
        for name, count in taken.gres:
            self.gres[name] += count

    def take_again(self, taken: Taken, cores: bool = True) -> None:
        """What a job has here is counted; ``cores`` as in ``give_back``."""
        if cores:
            self.busy |= taken.cores
        self.memory += taken.memory
        self.gpus |= taken.gpus
        for name, count in taken.gres:
            self.gres[name] -= count

    def _counters(self, request: JobRequest) -> tuple[tuple[str, int], ...]:
        counters: list[tuple[str, int]] = []
        for name, count in request.gres:
            counters.append((name, count))
            kind, _, typed = name.partition(":")
            if typed and kind in self.gres:
                counters.append((kind, count))
            elif not typed:
                counters += self._of_any_type(name, count)
        return tuple(counters)

    def _of_any_type(self, kind: str, count: int) -> list[tuple[str, int]]:
        """An untyped request takes units of the types that are free, in order of their names."""
        counters = []
        for name in sorted(name for name in self.gres if name.startswith(f"{kind}:")):
            part = min(count, self.gres[name])
            if part:
                counters.append((name, part))
                count -= part
        return counters


def _lowest_free(busy: int, count: int) -> int:
    """So many of the lowest bits that are not set."""
    chosen, bit = 0, 1
    while chosen.bit_count() < count:
        if not busy & bit:
            chosen |= bit
        bit <<= 1
    return chosen


def has_features(expression: str, features: Collection[str]) -> bool:
    """Slurm's ``--constraint`` with ``&`` and ``|`` (no brackets or counts)."""
    if not expression:
        return True
    return any(all(name in features for name in term.split("&")) for term in expression.split("|"))


class Placement(NamedTuple):
    """How many CPUs a job gets on which node; ``part``: for which part of a heterogeneous one."""

    node: FakeNode
    cpus: int
    part: int = 0


def place_job(request: JobRequest, nodes: Sequence[FakeNode], exclusive: bool = False) -> list[Placement] | None:
    """Where a job fits now, or None: all its required nodes, then the first others that suffice."""
    required = request.required_nodes
    most = request.max_nodes or len(nodes)
    chosen = [Placement(node, node.room(request, exclusive)) for node in nodes if node.name in required]
    if len(chosen) < len(required) or len(chosen) > most or not all(one.cpus for one in chosen):
        return None
    missing = request.cpus - sum(one.cpus for one in chosen)
    others = _others(request, nodes, exclusive, missing, most - len(chosen))
    wanted = max(request.nodes, 1)
    for candidate in others:
        if len(chosen) >= wanted and missing <= 0:
            break
        chosen.append(candidate)
        missing -= candidate.cpus
    if len(chosen) < wanted or missing > 0:
        return None
    return spread(request, chosen, exclusive)


def _others(
    request: JobRequest, nodes: Sequence[FakeNode], exclusive: bool, missing: int, most: int
) -> Iterator[Placement]:
    """Nodes besides the required ones, best first: as they come; where their number is limited, the roomiest."""
    required = request.required_nodes
    rooms = (Placement(node, node.room(request, exclusive)) for node in nodes if node.name not in required)
    if most == 1:
        return islice((one for one in rooms if one.cpus >= max(1, missing)), 1)
    found = (one for one in rooms if one.cpus)
    return islice(found if most >= len(nodes) else iter(sorted(found, key=lambda one: -one.cpus)), most)


def spread(request: JobRequest, chosen: Sequence[Placement], exclusive: bool) -> list[Placement]:
    """Fill node after node, leaving every later one its minimum."""
    if exclusive:
        return [Placement(node, node.node.cpus) for node, _, _ in chosen]
    least = max(1, request.min_cpus_per_node)
    left = request.cpus
    placements = []
    for position, (node, room, _) in enumerate(chosen):
        later = least * (len(chosen) - position - 1)
        cpus = min(room, max(least, left - later))
        placements.append(Placement(node, cpus))
        left -= cpus
    return placements
