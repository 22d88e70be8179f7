"""All running jobs that may be stopped at all, in the orders in which they are.

Arrays over the jobs, so that choosing among tens of thousands costs microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.rules import laws
from omfs_daemon.cluster.accounts import Entity
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.job_arrays import Places
from omfs_daemon.policy.arrays.job_arrays import Running
from omfs_daemon.policy.arrays.free_resources import Parcel
from omfs_daemon.policy.arrays.free_resources import parcel_of
from omfs_daemon.policy.rules.job_kinds import Kind
from omfs_daemon.policy.rules.job_kinds import Kinds
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.node_arrays import Machine
from omfs_daemon.policy.arrays.node_arrays import Suitable
from omfs_daemon.policy.victims.eligibility import has_stops_left
from omfs_daemon.policy.victims.eligibility import is_mature
from omfs_daemon.policy.victims.method_availability import Ways


class Pool:
    """Jobs are known by their place in the order of OMFS: least priority first (Algorithm 1, line 33), and among
    equals the one that started last, which has the least to lose. But first of all, who could not be stopped lately
    comes last."""

    def __init__(self, crowd: Crowd, machine: Machine, kinds: Kinds, ways: Ways, ledger: Ledger, now: float) -> None:
        running, alike = crowd.running, crowd.patterns.first
        kind_of = {number: kinds.of(alike[number]) for number in np.flatnonzero(np.bincount(running.alike)).tolist()}
        methods = {number: kind.job_class.methods for number, kind in kind_of.items()}
        self._methods, self._ways = kinds.rules.methods, ways
        found = np.flatnonzero(_stoppable(running, methods, kinds, ledger, now))
        failed = _failures(running, ledger)[found]
        order = found[np.lexsort((-running.ids[found], -running.since[found], running.priority[found], failed))]
        usable = self._usable(running, order, kind_of)
        if not all(usable):
            order = order[np.array([bool(names) for names in usable], dtype=bool)]
        self.methods = [names for names in usable if names]
        numbers = running.alike[order].tolist()
        self.jobs: list[Job] = running.jobs[order].tolist()
        self.leaves: list[Entity] = [kind_of[number].leaf for number in numbers]
        self.leaf: Ints = np.array([leaf.index for leaf in self.leaves], dtype=np.int64)
        self.cpus = running.cpus[order]
        self._failed = _failures(running, ledger)[order]
        latest = {n: laws.latest_mature_start(now, kind.job_class.quantum) for n, kind in kind_of.items()}
        self.mature: Bools = running.since[order] <= np.array([latest[n] for n in numbers], dtype=np.float64)
        if ledger.running_since:
            for at, (job, number) in enumerate(zip(self.jobs, numbers, strict=True)):
                if job.ref in ledger.running_since:
                    self.mature[at] = is_mature(job, kind_of[number].job_class, ledger, now)
        self.mature_cpus = int(self.cpus[self.mature].sum())
        self.alive: Bools = np.ones(len(self.jobs), dtype=bool)
        self.has_choice = any(self._most_freeing(names) != names[0] for names in set(self.methods))
        self._machine = machine
        self._places = _of_these(crowd.places(machine), order, len(running.jobs))
        self._parcels: dict[tuple[int, str], Parcel] = {}
        self._touching: dict[tuple[int, ...], tuple[tuple[Suitable, ...], Bools]] = {}

    @cached_property
    def by_remaining(self) -> Ints:
        """Longest remaining running time first (UJFB, section IV), those that could not be stopped lately last; then as
        above."""
        remaining = np.array([job.remaining() for job in self.jobs], dtype=np.float64)
        order: Ints = np.lexsort((-remaining, self._failed)).astype(np.int64)
        return order

    def on(self, mask: Bools) -> Bools:
        """Which jobs are on one of these nodes at least."""
        on: Bools = np.zeros(len(self.jobs), dtype=bool)
        on[self._places.owners[mask[self._places.nodes]]] = True
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
        held: Ints = np.zeros(len(self._machine.names), dtype=np.int64)
        of_chosen = chosen[self._places.owners]
        np.add.at(held, self._places.nodes[of_chosen], self._places.cpus[of_chosen])
        return held

    def parcel(self, at: int, method: str) -> Parcel:
        """What stopping the job by this method gives back."""
        known = self._parcels.get((at, method))
        if known is None:
            known = parcel_of(self._machine, self.jobs[at], self._methods[method])
            self._parcels[at, method] = known
        return known

    def preferred(self, at: int) -> str:
        return self.methods[at][0]

    def most_freeing(self, at: int) -> str:
        return self._most_freeing(self.methods[at])

    def have_room(self, chosen: Sequence[int], pick: Callable[[int], str]) -> bool:
        """Whether what all of these move out finds room on their nodes."""
        return self._ways.fit_together([(self.jobs[at], pick(at)) for at in chosen])

    def remove(self, gone: Iterable[int]) -> None:
        for at in gone:
            self.alive[at] = False
            self.mature_cpus -= int(self.cpus[at]) if self.mature[at] else 0

    def _usable(self, running: Running, order: Ints, kind_of: Mapping[int, Kind]) -> list[tuple[str, ...]]:
        """By which methods each of these can be stopped now, cheapest first.

        Most sites know one method only, which every job bears at any time: that is looked up once for all alike.
        """
        plain = {
            number: kind.job_class.methods
            for number, kind in kind_of.items()
            if len(kind.job_class.methods) == 1 and _is_always_usable(self._methods.get(kind.job_class.methods[0]))
        }
        ways = self._ways
        return [
            plain[number] if number in plain else ways.usable(job, kind_of[number].job_class)
            for job, number in zip(running.jobs[order].tolist(), running.alike[order].tolist(), strict=True)
        ]

    def _most_freeing(self, names: tuple[str, ...]) -> str:
        return max(names, key=lambda name: _freeing(self._methods[name]))


def _is_always_usable(method: Method | None) -> bool:
    return method is not None and not method.launched and not method.on_nodes


def _freeing(method: Method) -> tuple[bool, int]:
    return method.leaves, len(method.frees)


def _failures(running: Running, ledger: Ledger) -> Ints:
    """How often in a row each running job could not be stopped: others are tried before it."""
    if not ledger.failures:
        return np.zeros(len(running.jobs), dtype=np.int64)
    return np.array([ledger.failures.get(job.ref, 0) for job in running.jobs.tolist()], dtype=np.int64)


def _stoppable(
    running: Running, methods: Mapping[int, tuple[str, ...]], kinds: Kinds, ledger: Ledger, now: float
) -> Bools:
    """Which of the running jobs may be stopped by some method, and are not left alone for the time being."""
    by_number: Bools = np.zeros(max(methods, default=-1) + 1, dtype=bool)
    by_number[[number for number, allowed in methods.items() if allowed]] = True
    stoppable: Bools = by_number[running.alike]
    left_alone = {ref for commitment in ledger.commitments for ref in (*commitment.victims, commitment.beneficiary)}
    left_alone.update(ref for ref, until in ledger.spared.items() if until > now)
    left_alone.update(ref for ref in ledger.stop_times if not has_stops_left(ref, ledger, kinds.rules, now))
    if left_alone:
        stoppable &= np.array([job.ref not in left_alone for job in running.jobs.tolist()], dtype=bool)
    return stoppable


def _of_these(places: Places, order: Ints, count: int) -> Places:
    """The shares of jobs in this order, out of ``count`` jobs; the others' are left out."""
    at: Ints = np.full(count, -1, dtype=np.int64)
    at[order] = np.arange(len(order))
    owners = at[places.owners]
    kept = owners >= 0
    return Places(places.nodes[kept], owners[kept], places.cpus[kept], places.memory[kept])
