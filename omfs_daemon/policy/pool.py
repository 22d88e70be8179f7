"""All running jobs that may be stopped at all, in the orders in which they are.

Arrays over the jobs, so that choosing among tens of thousands costs microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.accounts import Entity
from omfs_daemon.policy.crowd import Crowd
from omfs_daemon.policy.free import Parcel, parcel_of
from omfs_daemon.policy.kinds import Kinds
from omfs_daemon.policy.machine import Bools, Ints, Machine, Suitable
from omfs_daemon.policy.queue import own_priorities
from omfs_daemon.policy.stopping import has_stops_left, is_mature, takes_method
from omfs_daemon.policy.usage import cpus_held


class Pool:
    """Jobs are known by their place in the order of OMFS: least priority first (Algorithm 1, line 33), and among
    equals the one that started last, which has the least to lose."""

    def __init__(self, crowd: Crowd, machine: Machine, kinds: Kinds, ledger: Ledger, now: float) -> None:
        found = list(_stoppable(crowd, kinds, ledger, now))
        started = np.array([job.start or 0.0 for job in found], dtype=np.float64)
        ids = np.array([job.id for job in found], dtype=np.int64)
        order = np.lexsort((-ids, -started, own_priorities(found)))
        self.jobs = [found[i] for i in order]
        self.leaves: list[Entity] = [kinds.of(job).leaf for job in self.jobs]
        self.methods = [methods_for(job, kinds) for job in self.jobs]
        self.leaf: Ints = np.array([leaf.index for leaf in self.leaves], dtype=np.int64)
        self.cpus: Ints = np.array([cpus_held(job) for job in self.jobs], dtype=np.int64)
        self.mature: Bools = np.array([is_mature(job, ledger, kinds.rules, now) for job in self.jobs], dtype=bool)
        self.mature_cpus = int(self.cpus[self.mature].sum())
        self.alive: Bools = np.ones(len(self.jobs), dtype=bool)
        self.has_choice = any(_most_freeing(methods) != methods[0] for methods in set(self.methods))
        self._machine = machine
        self._parcels: dict[tuple[int, str], Parcel] = {}
        self._touching: dict[tuple[int, ...], tuple[tuple[Suitable, ...], Bools]] = {}

    @cached_property
    def by_remaining(self) -> Ints:
        """Longest remaining running time first (UJFB, section IV); then as above."""
        remaining = np.array([job.remaining() for job in self.jobs], dtype=np.float64)
        order: Ints = np.argsort(-remaining, kind="stable").astype(np.int64)
        return order

    @cached_property
    def _places(self) -> tuple[Ints, Ints]:
        """Node and job of every share."""
        index = self._machine.index
        nodes, owners = [], []
        for at, job in enumerate(self.jobs):
            for share in job.shares:
                i = index.get(share[0])
                if i is not None:
                    nodes.append(i)
                    owners.append(at)
        return np.array(nodes, dtype=np.int64), np.array(owners, dtype=np.int64)

    def on(self, mask: Bools) -> Bools:
        """Which jobs are on one of these nodes at least."""
        nodes, owners = self._places
        on: Bools = np.zeros(len(self.jobs), dtype=bool)
        on[owners[mask[nodes]]] = True
        return on

    def on_suitable(self, suitable: tuple[Suitable, ...]) -> Bools:
        """The same for the nodes that suit a request; kept, since many requests are alike in this."""
        key = tuple(id(one) for one in suitable)
        known = self._touching.get(key)
        if known is None:
            mask: Bools = np.logical_or.reduce([one.mask for one in suitable])
            known = self._touching[key] = (suitable, self.on(mask))
        return known[1]

    def cpus_by_node(self, chosen: Bools) -> Ints:
        """CPUs that these jobs hold, by node."""
        index = self._machine.index
        held: Ints = np.zeros(len(self._machine.names), dtype=np.int64)
        for at in np.flatnonzero(chosen):
            for node, cpus, _ in self.jobs[at].shares:
                if node in index:
                    held[index[node]] += cpus
        return held

    def parcel(self, at: int, method: str) -> Parcel:
        """What stopping the job by this method gives back."""
        known = self._parcels.get((at, method))
        if known is None:
            known = parcel_of(self._machine, self.jobs[at], METHODS[method].frees_memory)
            self._parcels[at, method] = known
        return known

    def preferred(self, at: int) -> str:
        return self.methods[at][0]

    def most_freeing(self, at: int) -> str:
        return _most_freeing(self.methods[at])

    def remove(self, gone: Iterable[int]) -> None:
        for at in gone:
            self.alive[at] = False
            self.mature_cpus -= int(self.cpus[at]) if self.mature[at] else 0


def methods_for(job: Job, kinds: Kinds) -> tuple[str, ...]:
    """What its class allows and the job itself bears, in order of preference; none: it is not stopped."""
    methods = kinds.of(job).job_class.methods
    return methods if job.requeue else tuple(name for name in methods if takes_method(job, name))


def _most_freeing(methods: tuple[str, ...]) -> str:
    return next((name for name in methods if METHODS[name].frees_memory), methods[0])


def _stoppable(crowd: Crowd, kinds: Kinds, ledger: Ledger, now: float) -> Iterable[Job]:
    busy = {ref for commitment in ledger.commitments for ref in (*commitment.victims, commitment.beneficiary)}
    for job in crowd.running:
        if not methods_for(job, kinds) or job.ref in busy:
            continue
        if ledger.spared.get(job.ref, 0.0) > now:
            continue
        if job.ref not in ledger.stop_times or has_stops_left(job, ledger, kinds.rules, now):
            yield job
