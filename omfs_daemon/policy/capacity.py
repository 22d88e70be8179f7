"""What is free on the nodes, and where a request fits.

Arrays over the nodes, so that ten thousand nodes cost microseconds. Whatever this says "fits" must fit in
Slurm too; where Slurm is cleverer (sockets, topology), this errs on the side of "does not fit".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.jobs import Job, JobState, Request, Share
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.features import satisfies

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Freed(NamedTuple):
    """What stopping one job gives back: ``(index of node, CPUs, bytes)``, and generic resources on each node."""

    shares: tuple[tuple[int, int, int], ...]
    gres: tuple[tuple[str, int], ...]


class Frontier:
    """Requests that did not fit, so that those which ask for as much or more need not be tried.

    Comparable are requests that differ in CPUs and memory only: more nodes may fit where fewer do not.
    """

    def __init__(self) -> None:
        self._least: dict[tuple[object, ...], list[tuple[int, int, int]]] = {}
        self._key: dict[int, tuple[Request, tuple[object, ...]]] = {}

    def covers(self, request: Request) -> bool:
        least = self._least.get(self._signature(request))
        if least is None:
            return False
        cpus, per_cpu, per_node = request.cpus, request.memory_per_cpu, request.memory_per_node
        return any(cpus >= c and per_cpu >= p and per_node >= n for c, p, n in least)

    def add(self, request: Request) -> None:
        size = (request.cpus, request.memory_per_cpu, request.memory_per_node)
        kept = [
            known
            for known in self._least.get(self._signature(request), ())
            if not all(mine <= other for mine, other in zip(size, known, strict=True))
        ]
        self._least[self._signature(request)] = [*kept, size]

    def clear(self) -> None:
        self._least.clear()

    def _signature(self, request: Request) -> tuple[object, ...]:
        known = self._key.get(id(request))
        if known is None:
            known = (
                request,  # kept alive, so that its id stays its own
                (
                    request.nodes,
                    request.max_nodes,
                    request.min_cpus_per_node,
                    request.gres,
                    request.features,
                    request.exclusive,
                    request.partitions,
                    request.required_nodes,
                    request.excluded_nodes,
                ),
            )
            self._key[id(request)] = known
        return known[1]


class Capacity:
    """Free CPUs, memory (bytes) and generic resources of every node that Slurm would start a job on.

    Jobs count where they are; the victims of a stop under way count as gone, its beneficiary as there.
    ``soon_*`` is what completing jobs are about to give back.
    """

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        nodes = list(snapshot.nodes.values())
        self._snapshot = snapshot
        self.names = [node.name for node in nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.up: Bools = np.array([node.up for node in nodes], dtype=bool)
        self.cpus: Ints = np.array([node.cpus for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory for node in nodes], dtype=np.int64)
        self.gres: dict[str, Ints] = {}
        for i, node in enumerate(nodes):
            for name, count in node.gres:
                self.gres.setdefault(name, np.zeros(len(nodes), dtype=np.int64))[i] += count
        self.free_cpus = self.cpus.copy()
        self.free_memory = self.memory.copy()
        self.free_gres = {name: total.copy() for name, total in self.gres.items()}
        self.soon_cpus = np.zeros(len(nodes), dtype=np.int64)
        self.soon_memory = np.zeros(len(nodes), dtype=np.int64)
        self.soon_gres = {name: np.zeros(len(nodes), dtype=np.int64) for name in self.gres}
        self._suitable: dict[tuple[object, ...], tuple[Bools, ...]] = {}
        self._with_features: dict[tuple[str, str], Bools] = {}
        self._normal: dict[int, tuple[Request, Request]] = {}
        self._too_big = Frontier()
        self.total_free = 0
        self._count_jobs(ledger)

    # -- books --------------------------------------------------------------------------------------
    def _count_jobs(self, ledger: Ledger) -> None:
        leaving = {ref for commitment in ledger.commitments for ref in commitment.victims}
        running = {job.ref for job in self._snapshot.jobs.values() if job.holds_cpus}
        cpus = [0] * len(self.names)
        memory = [0] * len(self.names)
        index = self.index
        unsettled = {share.node for commitment in ledger.commitments for share in commitment.shares}
        for job in self._snapshot.jobs.values():
            if not job.shares:
                continue
            if job.ref in leaving:
                unsettled.update(job.on_nodes)
                continue
            holds_cpus = job.holds_cpus
            for share in job.shares:
                i = index.get(share.node)
                if i is not None:
                    if holds_cpus:
                        cpus[i] += share.cpus
                    memory[i] += share.memory
            if job.request.gres:
                self._move_gres(self.free_gres, job, -1)
            if job.state is JobState.COMPLETING:
                self._add_soon(job)
        self.free_cpus -= np.array(cpus, dtype=np.int64)
        self.free_memory -= np.array(memory, dtype=np.int64)
        self._trust_lower_books(unsettled)
        for commitment in ledger.commitments:
            if commitment.beneficiary not in running:
                self._subtract(commitment.shares)
        self._clamp()

    def _trust_lower_books(self, unsettled: set[str]) -> None:
        """Where Slurm's own books say that less is free than the jobs tell, believe the books."""
        for name, node in self._snapshot.nodes.items():
            if node.cpus_taken and name not in unsettled:
                i = self.index[name]
                self.free_cpus[i] = min(self.free_cpus[i], node.cpus - node.cpus_taken)

    def _add_soon(self, job: Job) -> None:
        for share in job.shares:
            i = self.index.get(share.node)
            if i is not None:
                self.soon_cpus[i] += share.cpus
                self.soon_memory[i] += share.memory
        self._move_gres(self.soon_gres, job, +1)

    def _move_gres(self, books: dict[str, Ints], job: Job, sign: int) -> None:
        for name, count in job.request.gres:
            if name in books:
                for share in job.shares:
                    i = self.index.get(share.node)
                    if i is not None:
                        books[name][i] += sign * count

    def _subtract(self, shares: Iterable[Share]) -> None:
        for share in shares:
            i = self.index.get(share.node)
            if i is not None:
                self.free_cpus[i] -= share.cpus
                self.free_memory[i] -= share.memory

    def _clamp(self) -> None:
        np.maximum(self.free_cpus, 0, out=self.free_cpus)
        np.maximum(self.free_memory, 0, out=self.free_memory)
        self.free_cpus[~self.up] = 0
        self.total_free = int(self.free_cpus.sum())
        self._too_big.clear()

    @property
    def size(self) -> int:
        """CPUs that are shared out: those of nodes that are up, and those of others on which jobs still run."""
        return int(np.where(self.up, self.cpus, np.minimum(self.cpus, self._cpus_in_use())).sum())

    def _cpus_in_use(self) -> Ints:
        used = np.zeros(len(self.names), dtype=np.int64)
        for job in self._snapshot.jobs.values():
            if job.runs:
                for share in job.shares:
                    i = self.index.get(share.node)
                    if i is not None and not self.up[i]:
                        used[i] += share.cpus
        return used

    # -- taking and giving within a plan --------------------------------------------------------------
    def take(self, shares: Sequence[Share], request: Request) -> None:
        """A job starts here. What did not fit before fits still less, so the memory of refusals stays valid."""
        for share in shares:
            i = self.index[share.node]
            cpus = min(share.cpus, int(self.free_cpus[i]))
            self.free_cpus[i] -= cpus
            self.total_free -= cpus
            self.free_memory[i] = max(0, int(self.free_memory[i]) - share.memory)
            for name, count in request.gres:
                if name in self.free_gres:
                    self.free_gres[name][i] -= count

    def freed_by(self, job: Job, frees_memory: bool) -> Freed:
        """What stopping a job gives back; nodes that are not up give nothing."""
        index = self.index
        return Freed(
            tuple(
                (index[share.node], share.cpus, share.memory if frees_memory else 0)
                for share in job.shares
                if share.node in index and self.up[index[share.node]]
            ),
            job.request.gres if frees_memory else (),
        )

    def give(self, freed: Iterable[Freed]) -> None:
        """Stopped jobs give back what they had."""
        for one in freed:
            for i, cpus, memory in one.shares:
                self.free_cpus[i] += cpus
                self.free_memory[i] += memory
                self.total_free += cpus
                for name, count in one.gres:
                    if name in self.free_gres:
                        self.free_gres[name][i] += count
        self._too_big.clear()

    def freed_copy(self, freed: Sequence[Freed], with_soon: bool = True) -> Capacity:
        """This capacity as it will be when these are given back (and completing jobs are gone)."""
        other = object.__new__(Capacity)
        other.__dict__.update(self.__dict__)
        other.free_cpus = self.free_cpus.copy()
        other.free_memory = self.free_memory.copy()
        other.free_gres = {name: free.copy() for name, free in self.free_gres.items()}
        if with_soon:
            other.free_cpus += np.where(self.up, self.soon_cpus, 0)
            other.free_memory += self.soon_memory
            other.total_free = int(other.free_cpus.sum())
            for name, free in other.free_gres.items():
                free += self.soon_gres[name]
        other._too_big = Frontier()
        other.give(freed)
        return other

    # -- placing ---------------------------------------------------------------------------------------
    def cpus_of(self, request: Request) -> int:
        """CPUs that the request will count for: whole nodes if it is exclusive."""
        request = self._normalised(request)
        if not request.exclusive:
            return request.cpus
        masks = self.suitable(request)
        largest = max((int(self.cpus[mask].max()) for mask in masks if mask.any()), default=0)
        return max(request.cpus, request.nodes * largest)

    def _normalised(self, request: Request) -> Request:
        """The request with its partitions' exclusivity. Parsers share equal requests, so identity is a good key."""
        known = self._normal.get(id(request))
        if known is None:
            partitions = self._snapshot.partitions
            exclusive = request.exclusive or any(
                partitions[name].exclusive for name in request.partitions if name in partitions
            )
            normal = replace(request, exclusive=True) if exclusive and not request.exclusive else request
            self._normal[id(request)] = known = (request, normal)
        return known[1]

    def suitable(self, request: Request) -> tuple[Bools, ...]:
        """One mask per partition of the request: nodes that are up and have what it names."""
        key = (request.partitions, request.features, request.required_nodes, request.excluded_nodes)
        masks = self._suitable.get(key)
        if masks is None:
            masks = tuple(self._mask(partition, request) for partition in request.partitions or ("",))
            self._suitable[key] = masks
        return masks

    def _mask(self, partition: str, request: Request) -> Bools:
        key = (partition, request.features)
        if key not in self._with_features:
            self._with_features[key] = self._partition_mask(partition, request.features)
        mask = self._with_features[key]
        if request.required_nodes and len(request.required_nodes) >= request.nodes:
            mask = mask & self.mask_of(request.required_nodes)
        if request.excluded_nodes:
            mask = mask & ~self.mask_of(request.excluded_nodes)
        return mask

    def _partition_mask(self, name: str, features: str) -> Bools:
        partition = self._snapshot.partitions.get(name)
        if partition is None:
            mask = self.up if not name else np.zeros(len(self.names), dtype=bool)
        elif not partition.up:
            mask = np.zeros(len(self.names), dtype=bool)
        else:
            mask = self.up & self.mask_of(partition.nodes)
        if features:
            nodes = self._snapshot.nodes
            mask = mask & np.array([satisfies(features, nodes[node].features) for node in self.names], dtype=bool)
        return mask

    def place(
        self, request: Request, prefer: Ints | None = None, only: Bools | None = None
    ) -> tuple[Share, ...] | None:
        """Where the request fits now, or None. ``prefer``: take nodes with more of this first (else best fit)."""
        if request.cpus > self.total_free or (only is None and self._too_big.covers(request)):
            return None
        normal = self._normalised(request)
        for mask in self.suitable(normal):
            shares = self._place_within(normal, mask if only is None else mask & only, prefer)
            if shares is not None:
                return shares
        if only is None:
            self._too_big.add(request)
        return None

    def _place_within(self, request: Request, mask: Bools, prefer: Ints | None) -> tuple[Share, ...] | None:
        mask = mask & (self.free_cpus >= max(1, request.min_cpus_per_node))
        if request.memory_per_node:
            mask = mask & (self.free_memory >= request.memory_per_node)
        if request.memory_per_cpu:
            least = max(1, request.min_cpus_per_node) * request.memory_per_cpu
            mask = mask & (self.free_memory >= least)
        for name, count in request.gres:
            free = self.free_gres.get(name)
            if free is None:
                return None
            mask = mask & (free >= count)
        if request.exclusive:
            mask = mask & (self.free_cpus == self.cpus) & (self.free_memory == self.memory)
        if request.required_nodes and not all(
            name in self.index and mask[self.index[name]] for name in request.required_nodes
        ):
            return None
        nodes = np.flatnonzero(mask)
        if len(nodes) < request.nodes:
            return None
        if request.exclusive:
            return self._whole_nodes(request, nodes)
        usable = self.free_cpus[nodes]
        if request.memory_per_cpu:
            usable = np.minimum(usable, self.free_memory[nodes] // request.memory_per_cpu)
        return self._evenly(request, nodes, usable, prefer) or self._unevenly(request, nodes, usable)

    def _whole_nodes(self, request: Request, nodes: Ints) -> tuple[Share, ...] | None:
        chosen = nodes[np.argsort(-self.cpus[nodes], kind="stable")]
        count, total = 0, 0
        while count < len(chosen) and (count < request.nodes or total < request.cpus):
            total += int(self.cpus[chosen[count]])
            count += 1
        if total < request.cpus or (request.max_nodes and count > max(request.max_nodes, request.nodes)):
            return None
        return tuple(
            Share(
                self.names[i],
                int(self.cpus[i]),
                request.memory_per_node or int(self.cpus[i]) * request.memory_per_cpu,
            )
            for i in chosen[:count]
        )

    def _evenly(self, request: Request, nodes: Ints, usable: Ints, prefer: Ints | None) -> tuple[Share, ...] | None:
        """The same number of CPUs on each node, one more on the first ones."""
        base, more = divmod(request.cpus, request.nodes)
        high = base + (1 if more else 0)
        by = -prefer[nodes] if prefer is not None else usable
        if request.nodes == 1:
            fitting = np.flatnonzero(usable >= high)
            if not len(fitting):
                return None
            return self._shares(request, [int(nodes[fitting[np.argmin(by[fitting])]])], [high])
        order = np.argsort(by, kind="stable")
        if request.required_nodes:
            others = ~self.mask_of(request.required_nodes)[nodes[order]]
            order = order[np.argsort(others, kind="stable")]
        count_high = more or request.nodes
        high_at = order[usable[order] >= high][:count_high]
        rest = order[~np.isin(order, high_at)] if more else order[:0]
        low_at = rest[usable[rest] >= base][: request.nodes - count_high]
        if len(high_at) + len(low_at) < request.nodes:
            return None
        amounts = [high] * len(high_at) + [base] * len(low_at)
        return self._shares(request, [int(i) for i in nodes[np.concatenate((high_at, low_at))]], amounts)

    def _unevenly(self, request: Request, nodes: Ints, usable: Ints) -> tuple[Share, ...] | None:
        """Where the number of nodes is open: as much as there is, the fullest share first."""
        if request.max_nodes and request.max_nodes <= request.nodes:
            return None
        most = request.max_nodes or len(nodes)
        order = np.argsort(-usable, kind="stable")
        left, chosen, amounts = request.cpus, list[int](), list[int]()
        for at in order[:most]:
            nodes_after = max(0, request.nodes - len(chosen) - 1)
            amount = min(int(usable[at]), left - nodes_after)
            if amount < max(1, request.min_cpus_per_node):
                break
            chosen.append(int(nodes[at]))
            amounts.append(amount)
            left -= amount
            if not left:
                break
        if left or len(chosen) < request.nodes:
            return None
        return self._shares(request, chosen, amounts)

    def _shares(self, request: Request, nodes: Sequence[int], cpus: Sequence[int]) -> tuple[Share, ...]:
        return tuple(
            Share(self.names[i], count, request.memory_per_node or count * request.memory_per_cpu)
            for i, count in zip(nodes, cpus, strict=True)
        )

    def has_free_cpus(self, shares: Iterable[Share]) -> bool:
        """Whether a suspended job could run on where it is (its memory is still its own)."""
        return all(
            share.node in self.index
            and self.up[self.index[share.node]]
            and self.free_cpus[self.index[share.node]] >= share.cpus
            for share in shares
        )

    def mask_of(self, names: Iterable[str]) -> Bools:
        mask = np.zeros(len(self.names), dtype=bool)
        for name in names:
            if name in self.index:
                mask[self.index[name]] = True
        return mask
