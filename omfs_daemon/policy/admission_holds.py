"""Which non-preemptible jobs to hold, and which of our holds to release.

Slurm starts jobs on idle CPUs by itself, so a non-preemptible job beyond its account's entitlement is held until it
fits (OMFS, Algorithm 1, line 23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from omfs_daemon.cluster.holds import is_held, is_held_by_us, is_released_by_administrator, may_hold
from omfs_daemon.cluster.job_refs import tasks_ref
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.plan import HoldChange, Reason
from omfs_daemon.policy.working_state import WorkingState


class AdmissionHolds:
    """The waiting jobs to hold and to release.

    Waiting jobs without a hold count as running, oldest first, for Slurm may start them at any moment; what exceeds the
    entitlement is held. ``to_hold``: job references, one for each task of an array.
    """

    def __init__(self, working_state: WorkingState) -> None:
        self._working_state = working_state
        self.holds: list[HoldChange] = []
        self.releases: list[HoldChange] = []
        self.to_hold: set[str] = set()
        self._held: list[Job] = []
        self._beyond: list[Job] = []

    def release(self, job: Job) -> None:
        """A preemptible or urgent job: it may start at once, unless we must choose its nodes first."""
        if job.request.unplaced:
            self.hold_as_admin(job)
        elif is_held_by_us(job):
            urgent = self._working_state.kinds.of(job).job_class.urgent
            reason = Reason.URGENT if urgent else Reason.PREEMPTIBLE
            self.releases.append(HoldChange(job.ref, job.account, reason))

    def hold_as_admin(self, job: Job) -> None:
        """The owner could release a hold set at submission, but not an administrator's."""
        if is_held_by_us(job):
            self._held.append(job)
        if is_held(job) and may_hold(job):
            reason = Reason.UNPLACED if job.request.unplaced else Reason.NON_PREEMPTIBLE_BEYOND
            self.holds.append(HoldChange(job.ref, job.account, reason))

    def admit(self, unheld: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """Count jobs without a hold for as long as they fit into the entitlement; hold the others.

        A job that cannot start before a later time or another job's end is held meanwhile and does not count. What an
        administrator has released is not held again: it counts, whether it fits or not. So do all jobs of an account
        that owns all CPUs: there is nobody for whom to hold them.
        """
        usage = self._working_state.usage
        for job in sorted(unheld, key=lambda job: (job.submit, job.id)):
            leaf = self._working_state.kinds.of(job).leaf
            cpus = self._working_state.capacity.cpus_of(job.request)
            is_for_later = job.eligible is not None and job.eligible > now
            if leaf.owns_all or is_released_by_administrator(job):
                if not is_for_later:
                    usage.add_non_preemptible(leaf, cpus * len(refs_of(job)))
                continue
            beyond = []
            for ref in refs_of(job):
                if not is_for_later and usage.admits_non_preemptible(leaf, cpus):
                    usage.add_non_preemptible(leaf, cpus)
                else:
                    beyond.append(ref)
            if beyond:
                self._beyond.append(job)
                self.to_hold.update(beyond)
                ref = joined(job, beyond)
                self.holds.append(HoldChange(ref, job.account, Reason.NON_PREEMPTIBLE_BEYOND))

    def changes(self, preemptors: Iterable[str]) -> tuple[tuple[HoldChange, ...], tuple[HoldChange, ...]]:
        """Holds and releases, without holds of jobs that this plan starts."""
        free = {change.ref for change in self.releases}.union(preemptors)
        return tuple(change for change in self.holds if change.ref not in free), tuple(self.releases)

    def claims(self, now: float) -> dict[int, float]:
        """As ``room_without_hold`` takes them: what is held, or to be held, and not released here.

        A job that is larger than the whole entitlement claims nothing.
        """
        kinds, capacity = self._working_state.kinds, self._working_state.capacity
        entitled = self._working_state.usage.entitled
        released, found = {change.ref for change in self.releases}, dict[int, float]()
        for job in (*self._held, *self._beyond):
            leaf = kinds.rules.tree.leaf(job.account)
            claim = found.get(leaf.index, 0)
            if claim == inf or job.ref in released or not kinds.of(job).non_preemptible:
                continue
            cpus = capacity.cpus_of(job.request)
            if all(cpus <= entitled[index] for index in leaf.path):
                is_for_later = job.eligible is not None and job.eligible > now
                found[leaf.index] = claim + cpus * job.tasks if is_for_later else inf
        return found

    def kept(self, refs_of: Callable[[Job], list[str]]) -> tuple[str, ...]:
        """What we hold and do not release here; a preemption that is accepted releases its preemptor itself."""
        released = {change.ref for change in self.releases}
        arrays = {ref.partition("_")[0] for ref in released if "_" in ref}
        kept = []
        for job in self._held:
            if str(job.array_id) in arrays:
                left = [ref for ref in refs_of(job) if ref not in released]
                kept += [joined(job, left)] if left else []
            elif job.ref not in released:
                kept.append(job.ref)
        return tuple(kept)


def joined(job: Job, refs: list[str]) -> str:
    """One reference for several tasks of a waiting array (``3_[4-5,7]``), so that one order holds them."""
    if len(refs) == len(job.task_ids) or len(refs) == 1:
        return job.ref if len(refs) > 1 else refs[0]
    return tasks_ref(job.array_id or job.id, (int(ref.partition("_")[2]) for ref in refs))
