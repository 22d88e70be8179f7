"""Which jobs that are never stopped must be held, and which holds of ours may end.

Slurm starts a job on idle CPUs the moment it may, so a non-preemptible job beyond its account's entitlement is held
until it fits (OMFS, Algorithm 1, line 23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.plan import Change
from omfs_daemon.policy.plan import Reason
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.policy.working_state import Standing


class Gating:
    """The waiting jobs that are held or let go. Waiting jobs that nothing holds count in full, oldest first, for Slurm
    may start them at any moment; what is over is held (``to_hold``: references, by task of an array)."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self.holds: list[Change] = []
        self.releases: list[Change] = []
        self.to_hold: set[str] = set()

    def let_go(self, job: Job) -> None:
        """It may be stopped, or it is urgent: no rule keeps it from starting, but that we choose its nodes first."""
        if job.request.unplaced:
            self.strengthen(job)
        elif is_held_by_us(job):
            urgent = self._standing.kinds.of(job).job_class.urgent
            reason = Reason.URGENT if urgent else Reason.MAY_BE_STOPPED
            self.releases.append(Change(job.ref, job.account, reason))

    def strengthen(self, job: Job) -> None:
        """Its owner could release a hold made at submit; an administrator's he cannot."""
        if job.hold is Hold.USER and is_held_by_us(job):
            reason = Reason.UNPLACED if job.request.unplaced else Reason.NON_PREEMPTIBLE_BEYOND
            self.holds.append(Change(job.ref, job.account, reason))

    def admit(self, unheld: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """Count jobs that nothing holds for as long as they fit into the entitlement; the others are to be held.

        A job that cannot start before a later time or another job's end is held meanwhile, and takes nobody's place.
        """
        usage = self._standing.usage
        for job in sorted(unheld, key=lambda job: (job.submit, job.id)):
            leaf = self._standing.kinds.of(job).leaf
            cpus = self._standing.capacity.cpus_of(job.request)
            is_for_later = job.eligible is not None and job.eligible > now
            beyond = []
            for ref in refs_of(job):
                if not is_for_later and usage.admits_fixed(leaf, cpus):
                    usage.add_fixed(leaf, cpus)
                else:
                    beyond.append(ref)
            if beyond:
                self.to_hold.update(beyond)
                ref = joined(job, beyond)
                self.holds.append(Change(ref, job.account, Reason.NON_PREEMPTIBLE_BEYOND))

    def changes(self, beneficiaries: Iterable[str]) -> tuple[tuple[Change, ...], tuple[Change, ...]]:
        """Holds and releases. A job that may start in this very pass need not be held first."""
        free = {change.ref for change in self.releases}.union(beneficiaries)
        return tuple(change for change in self.holds if change.ref not in free), tuple(self.releases)


def joined(job: Job, refs: list[str]) -> str:
    """One reference for several tasks of a waiting array (``3_[4,5,7]``), so that they are held by one order."""
    if len(refs) == len(job.task_ids) or len(refs) == 1:
        return job.ref if len(refs) > 1 else refs[0]
    return f"{job.array_id}_[{','.join(ref.partition('_')[2] for ref in refs)}]"
