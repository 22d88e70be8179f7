"""Which running jobs to stop, so that one certain job starts; or none, if that cannot be reached.

The rules of who may be stopped are here once; the safety gate asks the same questions again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Job, Request, Share
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.accounts import Entity, may_take
from omfs_daemon.policy.capacity import Bools, Capacity, Freed
from omfs_daemon.policy.queue import own_priority
from omfs_daemon.policy.rules import Rules
from omfs_daemon.policy.usage import ClassOf, Usage, cpus_held

HOUR = 3600.0


class Candidate(NamedTuple):
    """A running job that may be stopped. ``mature``: past its quantum."""

    job: Job
    leaf: Entity
    methods: tuple[str, ...]
    cpus: int
    mature: bool


@dataclass(frozen=True, slots=True)
class Need:
    """What is to become free: ``request`` anywhere, or exactly ``shares``' CPUs for a suspended job."""

    request: Request
    leaf: Entity
    cpus: int
    urgent: bool
    shares: tuple[Share, ...] = ()

    def place(
        self, capacity: Capacity, prefer: Capacity | None = None, only: Iterable[str] | None = None
    ) -> tuple[Share, ...] | None:
        if self.shares:
            return self.shares if capacity.has_free_cpus(self.shares) else None
        return capacity.place(
            self.request,
            prefer.free_cpus if prefer is not None else None,
            capacity.mask_of(only) if only is not None else None,
        )


class Choice(NamedTuple):
    """The victims with their methods, and where the beneficiary then fits."""

    victims: tuple[tuple[Candidate, str], ...]
    shares: tuple[Share, ...]


def running_since(job: Job, ledger: Ledger) -> float:
    """Since when the job has run uninterrupted."""
    start = job.start if job.start is not None else job.submit
    return max(start, ledger.running_since.get(job.ref, start))


def is_mature(job: Job, ledger: Ledger, rules: Rules, now: float) -> bool:
    """Whether the job has run uninterrupted for its quantum (OMFS, section II)."""
    return now - running_since(job, ledger) >= rules.quantum


def has_stops_left(job: Job, ledger: Ledger, rules: Rules, now: float) -> bool:
    recent = [at for at in ledger.stop_times.get(job.ref, ()) if at > now - HOUR]
    return len(recent) < rules.max_stops_per_hour


def candidates(snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float, class_of: ClassOf) -> list[Candidate]:
    """All running jobs that may be stopped for anybody at all."""
    busy = {ref for commitment in ledger.commitments for ref in (*commitment.victims, commitment.beneficiary)}
    found = []
    for job in snapshot.jobs.values():
        if not job.runs or job.ref in busy or ledger.spared.get(job.ref, 0.0) > now:
            continue
        methods = class_of(job).methods
        if methods and has_stops_left(job, ledger, rules, now):
            leaf = rules.tree.leaf(job.account)
            found.append(Candidate(job, leaf, methods, cpus_held(job), is_mature(job, ledger, rules, now)))
    return found


def least_priority_first(candidate: Candidate) -> tuple[float, float, int]:
    """OMFS, Algorithm 1, line 33; among equals the one that started last, which has the least to lose."""
    job = candidate.job
    return (own_priority(job), -(job.start or 0.0), -job.id)


def longest_remaining_first(candidate: Candidate) -> tuple[float, float, int]:
    """UJFB, section IV."""
    return (-candidate.job.remaining(), -(candidate.job.start or 0.0), -candidate.job.id)


class Pool:
    """All that may be stopped at all, in the two orders in which it is, and how much of it each account has."""

    def __init__(self, found: Iterable[Candidate], capacity: Capacity) -> None:
        found = list(found)
        self.by_priority = sorted((c for c in found if c.mature), key=least_priority_first)
        self.by_remaining = sorted(found, key=longest_remaining_first)
        self._capacity = capacity
        self._freed: dict[tuple[str, str], Freed] = {}
        self._cpus: dict[Entity, int] = {}
        for candidate in self.by_priority:
            self._cpus[candidate.leaf] = self._cpus.get(candidate.leaf, 0) + candidate.cpus

    def freed(self, candidate: Candidate, method: str) -> Freed:
        key = (candidate.job.ref, method)
        if key not in self._freed:
            self._freed[key] = self._capacity.freed_by(candidate.job, METHODS[method].frees_memory)
        return self._freed[key]

    def remove(self, refs: set[str]) -> None:
        """These are gone."""
        for candidate in self.by_priority:
            if candidate.job.ref in refs:
                self._cpus[candidate.leaf] -= candidate.cpus
        self.by_priority = [c for c in self.by_priority if c.job.ref not in refs]
        self.by_remaining = [c for c in self.by_remaining if c.job.ref not in refs]

    def most_for(self, need: Need, usage: Usage) -> int:
        """No more CPUs than this can be taken for an entitled job; on a tree, sides may open up on the way."""
        path = need.leaf.path
        return sum(
            cpus for leaf, cpus in self._cpus.items() if len(path) > 1 or usage.is_borrowing(leaf) or len(leaf.path) > 1
        )


def choose(need: Need, pool: Pool, capacity: Capacity, usage: Usage, rules: Rules) -> Choice | None:
    """The victims for a need, none of them needless; None if not enough may be stopped.

    First with each victim's preferred method; if that frees too little (a suspended job keeps its memory),
    with the one that frees most.
    """
    if not need.urgent:
        in_reach = capacity.total_free + int(capacity.soon_cpus.sum()) + pool.most_for(need, usage)
        if need.cpus > in_reach:
            return None
    useful = _useful_nodes(need, capacity)
    for pick in (_preferred, _most_freeing):
        order = _in_turn_for_urgent(pool, usage, rules) if need.urgent else _in_turn(need, pool, usage)
        touching = (c for c in order if any(useful[i] for i, _, _ in pool.freed(c, pick(c)).shares))
        taken = _shortest_prefix(need, pool, capacity, touching, pick)
        choice = _without_needless(need, pool, capacity, usage, taken, pick) if taken is not None else None
        if choice is not None:
            return choice
    return None


def _useful_nodes(need: Need, capacity: Capacity) -> Bools:
    if need.shares:
        return capacity.mask_of(share.node for share in need.shares)
    useful: Bools = np.logical_or.reduce(capacity.suitable(need.request))
    return useful


def _in_turn(need: Need, pool: Pool, usage: Usage) -> Iterator[Candidate]:
    """Mature jobs of accounts above their entitlement, for as long as they are above it."""
    trial = list(usage.all)
    for index in need.leaf.path:
        trial[index] += need.cpus
    path, entitled = need.leaf.path, usage.entitled
    for candidate in pool.by_priority:
        if may_take(trial, entitled, path, candidate.leaf.path):
            yield candidate
            for index in candidate.leaf.path:
                trial[index] -= candidate.cpus


def _in_turn_for_urgent(pool: Pool, usage: Usage, rules: Rules) -> Iterator[Candidate]:
    """Borrowers' jobs before those of accounts that only use their own. No quantum protects from urgent jobs."""
    trial = list(usage.all)
    owned = []
    for candidate in pool.by_remaining:
        index = candidate.leaf.index
        if trial[index] > usage.entitled[index]:
            trial[index] -= candidate.cpus
            yield candidate
        else:
            owned.append(candidate)
    if rules.urgent_may_take_entitled:
        yield from owned


def _preferred(candidate: Candidate) -> str:
    return candidate.methods[0]


def _most_freeing(candidate: Candidate) -> str:
    freeing = [name for name in candidate.methods if METHODS[name].frees_memory]
    return freeing[0] if freeing else candidate.methods[0]


Pick = Callable[[Candidate], str]


def _shortest_prefix(
    need: Need, pool: Pool, capacity: Capacity, order: Iterator[Candidate], pick: Pick
) -> list[Candidate] | None:
    """As many of the victims in turn as are enough: looked for in doubling steps, then by bisection."""

    def fits(taken: Sequence[Candidate]) -> bool:
        return need.place(capacity.freed_copy([pool.freed(c, pick(c)) for c in taken])) is not None

    taken: list[Candidate] = []
    short = -1
    while not fits(taken):
        short = len(taken)
        taken.extend(islice(order, max(1, short)))
        if len(taken) == short:
            return None
    low, high = short + 1, len(taken)
    while low < high:
        middle = (low + high) // 2
        if fits(taken[:middle]):
            high = middle
        else:
            low = middle + 1
    return taken[:high]


def _without_needless(
    need: Need, pool: Pool, capacity: Capacity, usage: Usage, taken: Sequence[Candidate], pick: Pick
) -> Choice | None:
    """Settle on nodes, let off everybody elsewhere, then the dearest first wherever the need still fits."""

    def place(victims: Sequence[Candidate], only: Iterable[str] | None) -> tuple[Share, ...] | None:
        return need.place(capacity.freed_copy([pool.freed(c, pick(c)) for c in victims]), capacity, only)

    shares = place(taken, None)
    if shares is None:
        return None
    wanted = {share.node for share in shares}
    keep = [candidate for candidate in taken if wanted.intersection(candidate.job.on_nodes)]
    for candidate in reversed(keep):
        rest = [other for other in keep if other is not candidate]
        if place(rest, wanted) is not None:
            keep = rest
    final = place(keep, wanted)
    fair = need.urgent or takes_fairly(need.leaf, need.cpus, [(c.leaf, c.cpus) for c in keep], usage)
    if final is None or not fair:
        return None
    return Choice(tuple((candidate, pick(candidate)) for candidate in keep), final)


def takes_fairly(taker: Entity, cpus: int, givers: Iterable[tuple[Entity, int]], usage: Usage) -> bool:
    """Whether jobs of these leaves, with so many CPUs, may all be taken for a job of ``cpus`` CPUs.

    In whatever order helps: what counts is that each giver is above its entitlement when its turn comes.
    """
    trial = list(usage.all)
    for index in taker.path:
        trial[index] += cpus
    left = sorted(givers, key=lambda giver: giver[1])
    while left:
        allowed = next((g for g in left if may_take(trial, usage.entitled, taker.path, g[0].path)), None)
        if allowed is None:
            return False
        for index in allowed[0].path:
            trial[index] -= allowed[1]
        left.remove(allowed)
    return True
