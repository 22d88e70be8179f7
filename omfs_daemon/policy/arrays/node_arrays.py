"""The nodes as arrays: what each has, and which of them suit a request; without the jobs on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.jobs import JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.policy.arrays.features import satisfies

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class SuitableNodes(NamedTuple):
    """The nodes of one partition that are up and have the requested features, as a mask and as indices."""

    mask: Bools
    nodes: Ints


class NodeArrays:
    """CPUs, memory (bytes), and generic resources of each node; nodes are given by their index."""

    def __init__(self, nodes: Mapping[str, Node], partitions: Mapping[str, Partition]) -> None:
        self._nodes, self._partitions = nodes, partitions
        all_nodes = list(nodes.values())
        self.names = [node.name for node in all_nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.up: Bools = np.array([node.up for node in all_nodes], dtype=bool)
        self.works: Bools = self.up | np.array([node.works for node in all_nodes], dtype=bool)
        self.cpus: Ints = np.array([node.cpus for node in all_nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory for node in all_nodes], dtype=np.int64)
        self.cpus_taken: Ints = np.array([node.cpus_taken for node in all_nodes], dtype=np.int64)
        self._threads = max((node.threads for node in all_nodes), default=1)
        self.gres: dict[str, Ints] = {}
        for i, node in enumerate(all_nodes):
            for name, count in node.gres:
                self.gres.setdefault(name, np.zeros(len(all_nodes), dtype=np.int64))[i] += count
        self._suitable: dict[tuple[object, ...], tuple[SuitableNodes, ...]] = {}
        self._named: dict[tuple[str, str], Bools] = {}
        self._exclusive = {name for name, partition in partitions.items() if partition.exclusive}

    def is_of(self, nodes: Mapping[str, Node], partitions: Mapping[str, Partition]) -> bool:
        """Whether it was made from the same objects."""
        return self._nodes is nodes and self._partitions is partitions

    def mask_of(self, names: Iterable[str]) -> Bools:
        mask = np.zeros(len(self.names), dtype=bool)
        mask[[self.index[name] for name in names if name in self.index]] = True
        return mask

    def indices_of(self, names: Iterable[str]) -> Ints:
        """The indices of these nodes, ascending, each once; unknown names are left out."""
        return np.array(sorted({self.index[name] for name in names if name in self.index}), dtype=np.int64)

    def same_gres(self, name: str) -> list[str]:
        """The names under which a generic resource counts: ``gpu:a100`` also counts as ``gpu``.

        A job that requests ``gpu`` may get any type, so it is subtracted from all types: better too little is free than
        too much.
        """
        general = name.partition(":")[0]
        if name == general:
            return [known for known in self.gres if known == name or known.startswith(f"{name}:")]
        return [known for known in (name, general) if known in self.gres]

    # -- requests ---------------------------------------------------------------------------------------
    def normalized(self, request: JobRequest) -> JobRequest:
        """The request as its partitions treat it: exclusive if they are, and on at least as many nodes as it names
        (sbatch(1), --nodelist)."""
        exclusive = request.exclusive or self._is_exclusive(request.partitions)
        nodes = max(1, request.nodes, len(request.required_nodes))
        if exclusive == request.exclusive and nodes == request.nodes:
            return request
        most = max(request.max_nodes, nodes) if request.max_nodes else 0
        return replace(request, exclusive=exclusive, nodes=nodes, max_nodes=most)

    def _is_exclusive(self, partitions: tuple[str, ...]) -> bool:
        return not self._exclusive.isdisjoint(partitions)

    def cpus_of(self, request: JobRequest) -> int:
        """The most CPUs that a job with this request may be allocated: whole cores, whole nodes if it is exclusive."""
        if request.parts:
            return sum(self.cpus_of(part) for part in request.parts)
        if not request.exclusive and not self._is_exclusive(request.partitions):
            return request.cpus if self._threads == 1 else self._whole_cores(request)
        request = self.normalized(request)
        sizes = [self.cpus[suitable.nodes] for suitable in self.suitable(request) if len(suitable.nodes)]
        if not sizes:
            return request.cpus
        largest, smallest = max(int(s.max()) for s in sizes), min(int(s.min()) for s in sizes)
        if request.cpus <= request.nodes * smallest:
            return request.nodes * largest
        if largest == smallest:
            return -(-request.cpus // largest) * largest
        most = max(request.nodes * largest, request.cpus + largest - 1)
        return min(most, request.max_nodes * largest) if request.max_nodes else most

    def _whole_cores(self, request: JobRequest) -> int:
        """Spread evenly, as Slurm does it where it can."""
        each, more = divmod(request.cpus, request.nodes)
        few, many = (-(-cpus // self._threads) * self._threads for cpus in (each, each + 1))
        return few * (request.nodes - more) + many * more

    def most_cpus_of(self, request: JobRequest) -> int:
        """As ``cpus_of``, on as many nodes as Slurm may give it: a job that leaves the number of its tasks open
        (``--nodes=2-4``) gets CPUs on each."""
        if request.parts:
            return sum(self.most_cpus_of(part) for part in request.parts)
        is_open = request.cpus <= request.nodes * request.min_cpus_per_node
        if not is_open or request.max_nodes <= request.nodes:
            return self.cpus_of(request)
        count = max((len(suitable.nodes) for suitable in self.suitable(self.normalized(request))), default=0)
        most = max(request.nodes, min(request.max_nodes, count))
        return self.cpus_of(replace(request, nodes=most, cpus=most * request.min_cpus_per_node))

    def suitable(self, request: JobRequest) -> tuple[SuitableNodes, ...]:
        """The nodes that suit a (normalized) request, for each of its partitions; of a heterogeneous job those that
        suit any of its parts."""
        key = (request.partitions, request.features, request.excluded_nodes, request.parts)
        found = self._suitable.get(key)
        if found is None and request.parts:
            each = [one.mask for part in request.parts for one in self.suitable(part)]
            mask: Bools = np.logical_or.reduce(each)
            found = self._suitable[key] = (SuitableNodes(mask, np.flatnonzero(mask)),)
        if found is None:
            masks = [self._mask(partition, request) for partition in request.partitions or ("",)]
            found = self._suitable[key] = tuple(SuitableNodes(mask, np.flatnonzero(mask)) for mask in masks)
        return found

    def _mask(self, partition: str, request: JobRequest) -> Bools:
        key = (partition, request.features)
        if key not in self._named:
            self._named[key] = self._partition_mask(partition, request.features)
        mask = self._named[key]
        if request.excluded_nodes:
            mask = mask & ~self.mask_of(request.excluded_nodes)
        return mask

    def _partition_mask(self, name: str, features: str) -> Bools:
        partition = self._partitions.get(name)
        if not name:
            mask = self.up
        elif partition is None or not partition.up:
            mask = np.zeros(len(self.names), dtype=bool)
        else:
            mask = self.up & self.mask_of(partition.nodes)
        if features:
            having = [satisfies(features, node.features) for node in self._nodes.values()]
            mask = mask & np.array(having, dtype=bool)
        return mask
