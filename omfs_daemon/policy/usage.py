"""Who uses how much now. Memoryless: only what runs at this instant counts (OMFS, section II)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.accounts import AccountTree, Entity
from omfs_daemon.policy.plan import AccountUse
from omfs_daemon.policy.rules import JobClass

ClassOf = Callable[[Job], JobClass]


class Usage:
    """CPUs per entity of the tree: ``all`` that run, and those of jobs that are never stopped.

    A job counts at its account and at every account above. Victims of a stop under way no longer count, its
    beneficiary does already. A non-preemptible job that nothing holds counts before it runs, for Slurm may
    start it at any moment.
    """

    def __init__(self, tree: AccountTree, cpus: int) -> None:
        self.tree = tree
        self.entitled = tree.entitled(cpus)
        self.all = [0] * len(tree.entities)
        self.fixed = [0] * len(tree.entities)

    def add(self, leaf: Entity, cpus: int, fixed: bool = False) -> None:
        for index in leaf.path:
            self.all[index] += cpus
            if fixed:
                self.fixed[index] += cpus

    def add_fixed(self, leaf: Entity, cpus: int) -> None:
        for index in leaf.path:
            self.fixed[index] += cpus

    def remove(self, leaf: Entity, cpus: int) -> None:
        for index in leaf.path:
            self.all[index] -= cpus

    def entitles(self, leaf: Entity, cpus: int) -> bool:
        """Whether some account on the path reaches at most its entitlement with so many CPUs more."""
        return any(self.all[index] + cpus <= self.entitled[index] for index in leaf.path)

    def admits_fixed(self, leaf: Entity, cpus: int) -> bool:
        """Whether a job that is never stopped fits into the entitlement on every level (Algorithm 1, line 23)."""
        return all(self.fixed[index] + cpus <= self.entitled[index] for index in leaf.path)

    def is_borrowing(self, leaf: Entity) -> bool:
        return self.all[leaf.index] > self.entitled[leaf.index]


def is_fixed(job_class: JobClass) -> bool:
    """Whether a job counts against what its account may fill with jobs that are never stopped."""
    return not job_class.methods and not job_class.urgent


def count_running(usage: Usage, snapshot: Snapshot, ledger: Ledger, class_of: ClassOf) -> None:
    """Fill in what runs, with the commitments under way."""
    leaving = {ref for commitment in ledger.commitments for ref in commitment.victims}
    running = set[str]()
    for job in snapshot.jobs.values():
        if job.runs and job.ref not in leaving:
            usage.add(usage.tree.leaf(job.account), cpus_held(job), is_fixed(class_of(job)))
            running.add(job.ref)
    for commitment in ledger.commitments:
        if commitment.beneficiary not in running:
            usage.add(usage.tree.leaf(commitment.account), sum(share.cpus for share in commitment.shares))


def cpus_held(job: Job) -> int:
    """CPUs that a running job holds: whole nodes for an exclusive one."""
    return sum(share.cpus for share in job.shares) or job.request.cpus


def account_rows(usage: Usage, pending: Iterable[Job], real: Sequence[int]) -> tuple[AccountUse, ...]:
    """One row per entity, for people and metrics. ``real``: CPUs that run now, by entity.

    ``lent`` shares out what leaf accounts borrow among those that leave part of their entitlement unused, in
    proportion; so over the leaves, lent adds up to at most borrowed.
    """
    tree = usage.tree
    waiting = [0] * len(tree.entities)
    for job in pending:
        for index in tree.leaf(job.account).path:
            waiting[index] += job.request.cpus * job.tasks
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
            waiting[entity.index],
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
