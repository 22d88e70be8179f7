"""Who uses how much now. Memoryless: only what runs at this instant counts (OMFS, section II)."""

from __future__ import annotations

from dataclasses import dataclass
from collections.abc import Sequence
import numpy as np
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.rules import laws
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.accounts import Entity
from omfs_daemon.policy.arrays.job_arrays import Crowd
from omfs_daemon.policy.arrays.job_arrays import cpus_held
from omfs_daemon.policy.rules.job_kinds import Kinds


@dataclass(frozen=True, slots=True)
class AccountUse:
    """CPUs of one account: of ``entitled``, ``used`` ones run; ``borrowed`` is beyond, ``lent`` is used by others."""

    account: str
    parent: str
    entitled: int
    used: int
    borrowed: int
    lent: int
    pending: int


class Usage:
    """CPUs per entity of the tree: ``real`` that run at this instant; ``all`` that run when all stops under way are
    through; ``fixed`` those of jobs that are never stopped.

    A job counts at its account and at every account above. Victims of a stop under way no longer count in ``all``,
    its beneficiary does already. A non-preemptible job that nothing holds counts in ``fixed`` before it runs,
    for Slurm may start it at any moment.
    """

    def __init__(self, tree: AccountTree, cpus: int) -> None:
        self.tree = tree
        self.entitled = tree.entitled(cpus)
        self.all = [0] * len(tree.entities)
        self.fixed = [0] * len(tree.entities)
        self.real = [0] * len(tree.entities)

    def add(self, leaf: Entity, cpus: int) -> None:
        laws.add(self.all, leaf.path, cpus)

    def add_fixed(self, leaf: Entity, cpus: int) -> None:
        laws.add(self.fixed, leaf.path, cpus)

    def remove(self, leaf: Entity, cpus: int) -> None:
        self.add(leaf, -cpus)

    def entitles(self, leaf: Entity, cpus: int) -> bool:
        """Whether some account on the path reaches at most its entitlement with so many CPUs more."""
        return cpus <= self.room(leaf)

    def room(self, leaf: Entity) -> int:
        """The most CPUs that the entitlement of some account on the path still has room for."""
        return laws.room(self.all, self.entitled, leaf.path)

    def admits_fixed(self, leaf: Entity, cpus: int) -> bool:
        """Whether a job that is never stopped fits into the entitlement on every level (Algorithm 1, line 23)."""
        return laws.admits_fixed(self.fixed, self.entitled, leaf.path, cpus)


def count_running(usage: Usage, crowd: Crowd, ledger: Ledger, kinds: Kinds) -> None:
    """Fill in what runs, and the stops under way."""
    held = [0] * len(usage.all)
    held_fixed = [0] * len(usage.all)
    cpus = np.bincount(crowd.running.alike, weights=crowd.running.cpus)
    for number in np.flatnonzero(cpus).tolist():
        kind = kinds.of(crowd.patterns.first[number])
        (held_fixed if kind.fixed else held)[kind.leaf.index] += int(cpus[number])
    for entity in usage.tree.entities:
        fixed = held_fixed[entity.index]
        usage.add(entity, held[entity.index] + fixed)
        usage.add_fixed(entity, fixed)
    usage.real[:] = usage.all
    if ledger.commitments:
        _count_stops(usage, crowd, ledger, kinds)


def _count_stops(usage: Usage, crowd: Crowd, ledger: Ledger, kinds: Kinds) -> None:
    known = crowd.find(ref for stop in ledger.commitments for ref in (stop.beneficiary, *stop.victims))
    for ref in {ref for stop in ledger.commitments for ref in stop.victims}:
        job = known.get(ref)
        if job is not None and job.runs:
            usage.remove(kinds.of(job).leaf, cpus_held(job))
    for stop in ledger.commitments:
        job = known.get(stop.beneficiary)
        cpus = sum(share.cpus for share in stop.shares)
        if job is None:
            usage.add(usage.tree.leaf(stop.account), cpus)
        elif job.state is JobState.PENDING or job.state is JobState.SUSPENDED:
            kind = kinds.of(job)
            usage.add(kind.leaf, cpus)
            if kind.fixed:
                usage.add_fixed(kind.leaf, cpus)


def account_rows(usage: Usage, pending: Sequence[int]) -> tuple[AccountUse, ...]:
    """One row per entity, for people and metrics; ``used`` is what runs now, ``pending`` the CPUs that wait.

    ``lent`` shares out what leaf accounts borrow among those that leave part of their entitlement unused, in
    proportion; so over the leaves, lent adds up to at most borrowed.
    """
    tree, real = usage.tree, usage.real
    unused = [max(0, usage.entitled[e.index] - real[e.index]) if e.is_leaf else 0 for e in tree.entities]
    borrowed = [max(0, real[e.index] - usage.entitled[e.index]) for e in tree.entities]
    total_borrowed = sum(borrowed[e.index] for e in tree.entities if e.is_leaf)
    lent = _shared_out(unused, min(total_borrowed, sum(unused)))
    for entity in tree.entities:
        if entity.is_leaf:
            for above in entity.path[1:]:
                lent[above] += lent[entity.index]
    return tuple(
        AccountUse(
            entity.name,
            tree.entities[entity.path[1]].name if len(entity.path) > 1 else "",
            usage.entitled[entity.index],
            real[entity.index],
            borrowed[entity.index],
            lent[entity.index],
            pending[entity.index],
        )
        for entity in tree.entities
    )


def _shared_out(weights: Sequence[int], amount: int) -> list[int]:
    """``amount`` in proportion to the weights, in whole CPUs, never above a weight."""
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    left = amount - sum(parts)
    for i in sorted(range(len(weights)), key=lambda i: -(amount * weights[i] % total)):
        if not left:
            break
        if parts[i] < weights[i]:
            parts[i] += 1
            left -= 1
    return parts
