"""What each account uses now; only jobs that run at this instant count (OMFS, section II)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omfs_daemon.cluster.accounts import AccountNode, AccountTree
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.arrays.job_arrays import JobArrays, cpus_held
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.job_kinds import JobKinds


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """CPUs of one account; ``borrowed``: used beyond ``entitled``; ``lent``: unused and used by others."""

    account: str
    parent: str
    entitled: int
    used: int
    borrowed: int
    lent: int
    pending: int


class Usage:
    """CPUs by entity of the account tree.

    real             used at this instant
    all              used once all preemptions under way are done: without their victims, with their preemptors
    non_preemptible  of non-preemptible jobs: running, or waiting without a hold, since Slurm may start them any moment;
                     and of running jobs that could not be preempted when that was last tried

    A job counts at its account and at every account above. ``cpus``: of the machine.
    """

    def __init__(self, tree: AccountTree, cpus: int) -> None:
        self.tree, self.cpus = tree, cpus
        self.entitled = tree.entitled(cpus)
        self.all = [0] * len(tree.entities)
        self.non_preemptible = [0] * len(tree.entities)
        self.real = [0] * len(tree.entities)

    def add(self, leaf: AccountNode, cpus: int) -> None:
        laws.add_cpus(self.all, leaf.path, cpus)

    def add_non_preemptible(self, leaf: AccountNode, cpus: int) -> None:
        laws.add_cpus(self.non_preemptible, leaf.path, cpus)

    def remove(self, leaf: AccountNode, cpus: int) -> None:
        self.add(leaf, -cpus)

    def entitles(self, leaf: AccountNode, cpus: int) -> bool:
        """Whether some account on the path stays within its entitlement with so many CPUs more."""
        return cpus <= self.room(leaf)

    def room(self, leaf: AccountNode) -> int:
        """The most CPUs that some account on the path may still use within its entitlement."""
        return laws.room(self.all, self.entitled, leaf.path)

    def admits_non_preemptible(self, leaf: AccountNode, cpus: int) -> bool:
        """Whether a non-preemptible job fits into the entitlement on every level (Algorithm 1, line 23)."""
        return laws.admits_non_preemptible(self.non_preemptible, self.entitled, leaf.path, cpus)


def count_running(usage: Usage, job_arrays: JobArrays, history: PreemptionHistory, kinds: JobKinds) -> None:
    """Count the running jobs and the preemptions under way."""
    held = [0] * len(usage.all)
    held_non_preemptible = [0] * len(usage.all)
    cpus = np.bincount(job_arrays.running.alike, weights=job_arrays.running.cpus)
    for number in np.flatnonzero(cpus).tolist():
        kind = kinds.of(job_arrays.patterns.first[number])
        if not kind.counts:
            continue
        (held_non_preemptible if kind.non_preemptible else held)[kind.leaf.index] += int(cpus[number])
    for entity in usage.tree.entities:
        non_preemptible = held_non_preemptible[entity.index]
        usage.add(entity, held[entity.index] + non_preemptible)
        usage.add_non_preemptible(entity, non_preemptible)
    usage.real[:] = usage.all
    for job in not_yielding(job_arrays, history, kinds):
        usage.add_non_preemptible(kinds.of(job).leaf, cpus_held(job))
    if history.under_way:
        _count_under_way(usage, job_arrays, history, kinds)


def not_yielding(job_arrays: JobArrays, history: PreemptionHistory, kinds: JobKinds) -> list[Job]:
    """The running jobs that are preemptible by their class, but could not be preempted when that was last tried: they
    count as non-preemptible."""
    if not history.failures:
        return []
    # Journals of earlier versions count 0 failures of jobs that were left to end a checkpoint.
    failed = (job for job in job_arrays.running.jobs.tolist() if history.failures.get(job.ref))
    return [
        job for job in failed if not kinds.of(job).non_preemptible and not kinds.of(job).job_class.is_never_preempted
    ]


def _count_under_way(usage: Usage, job_arrays: JobArrays, history: PreemptionHistory, kinds: JobKinds) -> None:
    known = job_arrays.find(
        ref for preemption in history.under_way for ref in (preemption.preemptor, *preemption.victims)
    )
    for ref in {ref for preemption in history.under_way for ref in preemption.victims}:
        job = known.get(ref)
        if job is not None and job.runs:
            usage.remove(kinds.of(job).leaf, cpus_held(job))
    for preemption in history.under_way:
        job = known.get(preemption.preemptor)
        cpus = sum(allocation.cpus for allocation in preemption.allocations)
        if job is None:
            usage.add(usage.tree.leaf(preemption.account), cpus)
        elif job.state is JobState.PENDING or job.state is JobState.SUSPENDED:
            kind = kinds.of(job)
            usage.add(kind.leaf, cpus)
            if kind.non_preemptible:
                usage.add_non_preemptible(kind.leaf, cpus)


def account_rows(usage: Usage, pending: Sequence[int]) -> tuple[AccountUsage, ...]:
    """One row per entity, for status and metrics; ``pending``: CPUs that waiting jobs request.

    ``lent``: what leaf accounts borrow, divided among the leaf accounts with unused entitlement in proportion to it; so
    over the leaves, lent adds up to at most borrowed.
    """
    tree, real = usage.tree, usage.real
    unused = [max(0, usage.entitled[e.index] - real[e.index]) if e.is_leaf else 0 for e in tree.entities]
    borrowed = [max(0, real[e.index] - usage.entitled[e.index]) for e in tree.entities]
    total_borrowed = sum(borrowed[e.index] for e in tree.entities if e.is_leaf)
    lent = _apportion(unused, min(total_borrowed, sum(unused)))
    for entity in tree.entities:
        if entity.is_leaf:
            for above in entity.path[1:]:
                lent[above] += lent[entity.index]
    return tuple(
        AccountUsage(
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


def _apportion(weights: Sequence[int], amount: int) -> list[int]:
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
