"""The candidates: all running jobs that may be preempted, in the order in which victims are chosen.

They are arrays, so that choosing among tens of thousands of jobs takes microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.exemptions import Exemptions
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import MethodTraits
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.cluster.units import ResumeBlocks
from omfs_daemon.policy.arrays.free_resources import JobResources, freed_resources
from omfs_daemon.policy.arrays.job_arrays import Floats, JobArrays, RunningAllocations, RunningJobs
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints, NodeArrays, SuitableNodes
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.job_kinds import JobKind, JobKinds
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.victims.eligibility import has_preemptions_left, is_mature
from omfs_daemon.policy.victims.method_availability import MethodAvailability
from omfs_daemon.policy.victims.victim_costs import VictimCosts

QUICK = 1.0
"""Seconds within which a job should let go that is preempted for an urgent one."""


class Candidates:
    """The candidates, by index in the order of OMFS. Who gives first:

    1. A job that could be preempted the last time it was tried; then one that failed once, and so on.
    2. The job of a user none of whose other running jobs failed to be preempted; then one of a user with one failure,
       and so on.
    3. The job of lowest priority (Algorithm 1, line 33).
    4. The job that was preempted least often in its life.
    5. The job that started last, which has the least work to lose; of several, the one with the highest id.

    For urgent jobs see ``by_remaining``.
    """

    def __init__(
        self,
        job_arrays: JobArrays,
        node_arrays: NodeArrays,
        kinds: JobKinds,
        availability: MethodAvailability,
        history: PreemptionHistory,
        now: float,
        blocks: ResumeBlocks,
    ) -> None:
        running, alike = job_arrays.running, job_arrays.patterns.first
        kind_of = {number: kinds.of(alike[number]) for number in np.flatnonzero(np.bincount(running.alike)).tolist()}
        methods = {number: kind.job_class.methods for number, kind in kind_of.items()}
        self._methods, self._availability, self._blocks = kinds.rules.methods, availability, blocks
        found = np.flatnonzero(_preemptible(running, methods, history, kinds.rules.exemptions, now))
        failures = _by_job(running, history.failures)
        of_user = _by_user(running, failures)
        counts = _by_job(running, history.preemption_counts)
        keys = (-running.ids, -running.since, counts, running.priority, of_user, failures)
        order = found[np.lexsort([key[found] for key in keys])]
        usable = self._usable(running, order, kind_of)
        if not all(usable):
            order = order[np.array([bool(names) for names in usable], dtype=bool)]
        self.methods = [names for names in usable if names]
        numbers = running.alike[order].tolist()
        self.jobs: list[Job] = running.jobs[order].tolist()
        self.leaves: list[AccountNode] = [kind_of[number].leaf for number in numbers]
        self.leaf: Ints = np.array([leaf.index for leaf in self.leaves], dtype=np.int64)
        self.cpus = running.cpus[order]
        self._ids = running.ids[order]
        self._failed, self._failed_of_user = failures[order], of_user[order]
        latest = {n: laws.latest_mature_start(now, kind.job_class.quantum) for n, kind in kind_of.items()}
        self.mature: Bools = running.since[order] <= np.array([latest[n] for n in numbers], dtype=np.float64)
        known = history.running_since.keys() | history.preemption_counts.keys()
        recent = history.preemption_times.keys() | history.set_apart.keys()
        limited = {ref for ref in recent if not has_preemptions_left(ref, history, kinds.rules, now)}
        if known or limited:
            for at, (job, number) in enumerate(zip(self.jobs, numbers, strict=True)):
                if job.ref in known:
                    self.mature[at] = is_mature(job, kind_of[number].job_class, history, now)
                if job.ref in limited:
                    self.mature[at] = False
        self.mature_cpus = int(self.cpus[self.mature].sum())
        self.alive: Bools = np.ones(len(self.jobs), dtype=bool)
        choices = set(self.methods)
        self.has_choice = any(self._most_freeing(names) != names[0] for names in choices)
        self._all_leave = not self.has_choice and all(self._methods[names[0]].leaves for names in choices)
        self._node_arrays = node_arrays
        self.searches = kinds.rules.fair_set_searches
        self.allocations = _selected(job_arrays.allocations_on(node_arrays), order, len(running.jobs))
        self.known_costs: dict[tuple[RealtimeTerms, bool], VictimCosts] = {}
        self._freed: dict[tuple[int, str], JobResources] = {}
        self._by_node: dict[bool, RunningAllocations] = {}
        self._gres: dict[str, Ints] = {}
        self._touching: dict[tuple[int, ...], tuple[tuple[SuitableNodes, ...], Bools]] = {}

    @cached_property
    def by_remaining(self) -> Ints:
        """Indices by remaining time, longest first (UJFB, section IV). Jobs that need longer than ``QUICK`` to let go
        come behind all others; those that recently could not be preempted, or whose users' jobs could not, last."""
        remaining = np.array([self._availability.remaining.likely(job) for job in self.jobs], dtype=np.float64)
        takes_time = {name: self._availability.takes_time(name) for name in {names[0] for names in self.methods}}
        slow: Bools = np.array(
            [
                takes_time[names[0]] and self._availability.cost(job, names[0]).preempt > QUICK
                for job, names in zip(self.jobs, self.methods, strict=True)
            ],
            dtype=bool,
        )
        order: Ints = np.lexsort((-remaining, slow, self._failed_of_user, self._failed)).astype(np.int64)
        return order

    @cached_property
    def submitted(self) -> Floats:
        """By candidate: when it was submitted."""
        return np.array([job.submit for job in self.jobs], dtype=np.float64)

    def on(self, mask: Bools) -> Bools:
        """Which jobs are on at least one of these nodes."""
        on: Bools = np.zeros(len(self.jobs), dtype=bool)
        on[self.allocations.owners[mask[self.allocations.nodes]]] = True
        return on

    def on_suitable(self, suitable: tuple[SuitableNodes, ...]) -> Bools:
        """The same for the nodes that suit a request; cached, since many requests share them."""
        key = tuple(id(one) for one in suitable)
        known = self._touching.get(key)
        if known is None:
            mask: Bools = np.logical_or.reduce([one.mask for one in suitable])
            known = self._touching[key] = (suitable, self.on(mask))
        return known[1]

    def in_the_way_of(self, ref: str) -> Bools:
        """Which jobs keep this suspended job from being resumed."""
        ids = [number for number, blocked in self._blocks.by_job.items() if ref in blocked]
        found: Bools = np.isin(self._ids, np.array(ids, dtype=np.int64))
        return found

    def by_node(self, urgent: bool) -> RunningAllocations:
        """The allocations by node, and on each node by place in the order of OMFS, or of UJFB; cached."""
        known = self._by_node.get(urgent)
        if known is None:
            found = self.allocations
            order = np.lexsort((self.places(urgent)[found.owners], found.nodes))
            known = self._by_node[urgent] = RunningAllocations(*(column[order] for column in found))
        return known

    def places(self, urgent: bool) -> Ints:
        """By candidate: its place in the order of OMFS, or of UJFB."""
        if not urgent:
            return np.arange(len(self.jobs))
        places: Ints = np.empty(len(self.jobs), dtype=np.int64)
        places[self.by_remaining] = np.arange(len(self.jobs))
        return places

    def leave(self, pick: Callable[[int], str]) -> Bools:
        """By candidate: whether it leaves its nodes if it is preempted by this choice of methods."""
        if self._all_leave:
            return np.ones(len(self.jobs), dtype=bool)
        return np.array([self._methods[pick(at)].leaves for at in range(len(self.jobs))], dtype=bool)

    def gres(self, name: str) -> Ints:
        """By candidate: how many of this generic resource it has on each of its nodes, or on one of a part's."""
        known = self._gres.get(name)
        if known is None:
            same = {other for other in self._node_arrays.gres if name in self._node_arrays.same_gres(other)} | {name}
            requests = ((job.request, *job.request.parts) for job in self.jobs)
            counts = [max(sum(count for own, count in one.gres if own in same) for one in parts) for parts in requests]
            known = self._gres[name] = np.array(counts, dtype=np.int64)
        return known

    def freed_by(self, at: int, method: str) -> JobResources:
        """What preempting the job by this method frees."""
        known = self._freed.get((at, method))
        if known is None:
            known = freed_resources(self._node_arrays, self.jobs[at], self._methods[method], self._blocks)
            self._freed[at, method] = known
        return known

    def preferred(self, at: int) -> str:
        return self.methods[at][0]

    def most_freeing(self, at: int) -> str:
        return self._most_freeing(self.methods[at])

    def have_room(self, chosen: Sequence[int], pick: Callable[[int], str]) -> bool:
        """Whether their nodes have room for all memory that these jobs move out."""
        return self._availability.fit_together([(self.jobs[at], pick(at)) for at in chosen])

    def outlay(self, at: int, method: str) -> float:
        """Seconds to preempt and to resume the job, and of its work that is lost, as estimated."""
        return self._availability.cost(self.jobs[at], method).total

    def longest_remaining(self, at: int) -> float:
        """Seconds after which the job will have ended, preempted or not."""
        return self._availability.remaining.longest(self.jobs[at])

    def outlays(self, pick: Callable[[int], str]) -> Floats:
        """The same by candidate, of the methods that ``pick`` chooses."""
        at_once = {name: not self._availability.takes_time(name) for names in set(self.methods) for name in names}
        keeps = {name: self._methods[name].keeps_work for name in at_once if name in self._methods}
        found: Floats = np.zeros(len(self.jobs), dtype=np.float64)
        for at, job in enumerate(self.jobs):
            name = pick(at)
            if not at_once[name]:
                found[at] = self.outlay(at, name)
            elif not keeps.get(name, True):
                found[at] = job.run_time
        return found

    def seconds(self, at: int, method: str) -> float:
        """Until the job lets go, as far as known."""
        return self._availability.cost(self.jobs[at], method).preempt if self._availability.takes_time(method) else 0.0

    def remove(self, gone: Iterable[int]) -> None:
        for at in gone:
            self.alive[at] = False
            self.mature_cpus -= int(self.cpus[at]) if self.mature[at] else 0

    def _usable(self, running: RunningJobs, order: Ints, kind_of: Mapping[int, JobKind]) -> list[tuple[str, ...]]:
        """The methods by which each of these jobs can be preempted now, cheapest first.

        Most sites have a single method that works for every job at any time; that is looked up once for jobs alike.
        """
        plain = {
            number: self._availability.with_last_resort(kind.job_class.methods, kind.job_class)
            for number, kind in kind_of.items()
            if len(kind.job_class.methods) == 1 and self._availability.is_always_usable(kind.job_class.methods[0])
        }
        availability = self._availability
        return [
            plain[number] if number in plain else availability.usable(job, kind_of[number].job_class)
            for job, number in zip(running.jobs[order].tolist(), running.alike[order].tolist(), strict=True)
        ]

    def _most_freeing(self, names: tuple[str, ...]) -> str:
        return max(names, key=lambda name: _freeing(self._methods[name]))


def _freeing(method: MethodTraits) -> tuple[bool, int]:
    return method.leaves, len(method.frees)


def _by_job(running: RunningJobs, counts: Mapping[str, int]) -> Ints:
    """The counts of the running jobs, 0 for others."""
    if not counts:
        return np.zeros(len(running.jobs), dtype=np.int64)
    return np.array([counts.get(job.ref, 0) for job in running.jobs.tolist()], dtype=np.int64)


def _by_user(running: RunningJobs, counts: Ints) -> Ints:
    """For each running job the sum of the counts of its user's jobs."""
    found = np.flatnonzero(counts).tolist()
    sums: Ints = np.zeros(len(counts), dtype=np.int64)
    if found:
        by_user: dict[int, int] = {}
        for at in found:
            uid = running.jobs[at].uid
            by_user[uid] = by_user.get(uid, 0) + int(counts[at])
        sums[:] = [by_user.get(job.uid, 0) for job in running.jobs.tolist()]
    return sums


def _preemptible(
    running: RunningJobs,
    methods: Mapping[int, tuple[str, ...]],
    history: PreemptionHistory,
    exemptions: Exemptions,
    now: float,
) -> Bools:
    """Which running jobs may be preempted by some method and are not excluded at present."""
    by_number: Bools = np.zeros(max(methods, default=-1) + 1, dtype=bool)
    by_number[[number for number, allowed in methods.items() if allowed]] = True
    preemptible: Bools = by_number[running.alike]
    excluded = {ref for preemption in history.under_way for ref in (*preemption.victims, preemption.preemptor)}
    excluded.update(ref for ref, until in history.spared.items() if until > now)
    if exemptions:
        preemptible &= np.array([exemptions.of(job, now) is None for job in running.jobs.tolist()], dtype=bool)
    if excluded:
        preemptible &= np.array([job.ref not in excluded for job in running.jobs.tolist()], dtype=bool)
    return preemptible


def _selected(allocations: RunningAllocations, order: Ints, count: int) -> RunningAllocations:
    """The allocations of the jobs in this order, out of ``count`` jobs, without those of the other jobs."""
    at: Ints = np.full(count, -1, dtype=np.int64)
    at[order] = np.arange(len(order))
    owners = at[allocations.owners]
    kept = owners >= 0
    return RunningAllocations(allocations.nodes[kept], owners[kept], allocations.cpus[kept], allocations.memory[kept])
