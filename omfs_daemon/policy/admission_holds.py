"""Which non-preemptible jobs to hold, and which of our holds to release.

Slurm starts jobs on idle CPUs by itself, so a non-preemptible job beyond its account's entitlement is held until it
fits (OMFS, Algorithm 1, line 23). Within an account, jobs are admitted in order, so that none starves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.holds import (
    could_start,
    is_held_by_us,
    is_held_since_submit,
    is_released_by_administrator,
    may_hold,
    waits_for,
)
from omfs_daemon.cluster.job_refs import tasks_ref
from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.policy.arrays.job_arrays import cpus_held, task_refs
from omfs_daemon.policy.arrays.usage import not_yielding
from omfs_daemon.policy.plan import HoldChange, Reason, set_back_since
from omfs_daemon.policy.rules.account_order import AccountJob, AccountUse, admit_in_order, use_until
from omfs_daemon.policy.rules.laws import add_cpus, admits_non_preemptible
from omfs_daemon.policy.rules.queue_order import own_nice
from omfs_daemon.policy.working_state import WorkingState

BELIEF = 300.0
"""Seconds for which a job without a hold that waits for something else than nodes, a limit for instance, or that was
tried in vain, counts before jobs of its account that could start."""

_SETTLES = 1.0  # by how much Slurm's clock may be behind


class _Candidate(NamedTuple):
    """A waiting job that may be admitted; ``later``: it could not start now even if it fitted."""

    job: Job
    refs: list[str]
    leaf: AccountNode
    cpus: int
    later: bool

    @property
    def order(self) -> tuple[bool, int, float, int]:
        """As Slurm's queue, but without the priority, which Slurm does not give to held jobs. A job that was held
        because it waited for something else comes after those that it gave way to."""
        job = self.job
        since = job.submit if job.hold is Hold.NONE else max(job.submit, set_back_since(job.admin_comment))
        return self.later, own_nice(job), since, job.id


class AdmissionHolds:
    """The waiting jobs to hold and to release.

    Waiting jobs without a hold count as running, for Slurm may start them at any moment; what exceeds the entitlement
    is held. ``to_hold``: job references, one for each task of an array.
    """

    def __init__(self, working_state: WorkingState) -> None:
        self._working_state = working_state
        self.holds: list[HoldChange] = []
        self.releases: list[HoldChange] = []
        self.to_hold: set[str] = set()
        self._held: list[Job] = []
        self._beyond: list[Job] = []
        self._admitted: set[str] = set()
        self._reasons: dict[int, Reason] = {}

    def update(self, jobs: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """Hold and release: non-preemptible jobs, and all held jobs."""
        non_preemptible = []
        for job in jobs:
            if self._working_state.kinds.of(job).non_preemptible:
                non_preemptible.append(job)
            else:
                self._release(job)
        self._admit(non_preemptible, refs_of, now)

    def _release(self, job: Job) -> None:
        """A preemptible or urgent job: it may start at once, unless we must choose its nodes first."""
        if job.request.unplaced:
            self._keep_held(job)
        elif is_held_by_us(job):
            job_class = self._working_state.kinds.of(job).job_class
            others = Reason.BORROWS if job_class.realtime else Reason.PREEMPTIBLE
            reason = Reason.URGENT if job_class.urgent else others
            self.releases.append(HoldChange(job.ref, job.account, reason))

    def _admit(self, jobs: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """Count the non-preemptible jobs that fit into the entitlement, and release them; hold the others.

        What an administrator has released is not held again: it counts, whether it fits or not.
        """
        if self._working_state.rules.keeps_account_order:
            self._admit_in_order(jobs, refs_of, now)
            return
        unheld = []
        for job in jobs:
            if job.hold is Hold.NONE:
                unheld.append(job)
            else:
                self._keep_held(job)
        self._admit_what_fits(unheld, refs_of, now)

    def is_counted(self, job: Job) -> bool:
        """Whether a non-preemptible job that may start is counted as running already."""
        return job.hold is Hold.NONE or self._working_state.rules.keeps_account_order

    def why_held(self, job: Job, ref: str) -> Reason | None:
        """Why a non-preemptible job that we hold is not admitted, where admission decides that."""
        if ref in self._admitted or not self._working_state.rules.keeps_account_order:
            return None
        return self.reason_of(job)

    def reason_of(self, job: Job) -> Reason:
        """Why a job, or some of its tasks, is not admitted."""
        return self._reasons.get(job.id, Reason.NON_PREEMPTIBLE_BEYOND)

    # -- what fits, oldest first ---------------------------------------------------------------------------
    def _admit_what_fits(self, unheld: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """OMFS as published: whatever fits may start. A job that cannot start before a later time or another job's end
        is held meanwhile and does not count. All jobs of an account that owns all CPUs count: there is nobody for whom
        to hold them."""
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
                self._hold(job, beyond, now)

    # -- in order ------------------------------------------------------------------------------------------
    def _admit_in_order(self, jobs: Iterable[Job], refs_of: Callable[[Job], list[str]], now: float) -> None:
        """Jobs that could start come first; one that waits for something else is not held for as long as it fits beside
        all of these. What is not held yet may start until it is held, so nothing is released in its place before."""
        usage = self._working_state.usage
        in_use = [*self._in_use(now)]
        candidates = sorted(self._candidates(jobs, refs_of, in_use, now), key=lambda candidate: candidate.order)
        standing = list(usage.non_preemptible)
        for job, refs, leaf, cpus, _ in candidates:
            if job.hold is Hold.NONE:
                add_cpus(standing, leaf.path, cpus * len(refs))
        queue = (
            AccountJob(leaf.path, cpus, job.time_limit, len(refs), not later)
            for job, refs, leaf, cpus, later in candidates
        )
        counts = admit_in_order(queue, in_use, usage.entitled, now)
        for (job, refs, leaf, cpus, later), count in zip(candidates, counts, strict=True):
            usage.add_non_preemptible(leaf, cpus * count)
            if count < len(refs):
                self._reasons[job.id] = self._why_not(leaf, cpus, later)
            if job.hold is Hold.NONE:
                if count < len(refs):
                    self._hold(job, refs[count:], now)
                continue
            self._keep_held(job, now, is_ours=True)
            self._admitted.update(refs[:count])
            for ref in refs[:count] if not job.request.unplaced else ():
                if admits_non_preemptible(standing, usage.entitled, leaf.path, cpus):
                    add_cpus(standing, leaf.path, cpus)
                    self.releases.append(HoldChange(ref, job.account, Reason.WITHIN_ENTITLEMENT))

    def _candidates(
        self, jobs: Iterable[Job], refs_of: Callable[[Job], list[str]], in_use: list[AccountUse], now: float
    ) -> Iterator[_Candidate]:
        """The jobs of which admission decides; adds those that count although it does not to ``in_use``."""
        kinds, usage, capacity = self._working_state.kinds, self._working_state.usage, self._working_state.capacity
        for job in jobs:
            leaf, is_ours = kinds.of(job).leaf, job.hold is not Hold.NONE and is_held_by_us(job)
            if job.hold is not Hold.NONE and not is_ours:
                continue
            if job.deadline + _SETTLES < now:
                # Slurm ends no job that is held, and starts none whose deadline has passed.
                if is_ours:
                    self.releases.append(HoldChange(job.ref, job.account, Reason.DEADLINE_PASSED))
            elif leaf.owns_all:
                if is_ours:
                    self._release_owners(job, refs_of(job), now)
            elif not is_ours and is_released_by_administrator(job):
                if not _is_for_later(job, now):
                    cpus = capacity.cpus_of(job.request) * len(refs_of(job))
                    usage.add_non_preemptible(leaf, cpus)
                    in_use.append(AccountUse(leaf.path, cpus, use_until(now, job.time_limit)))
            elif is_ours and _is_for_later(job, now) and not is_held_since_submit(job):
                # Released again only when it could start, so that it is not held and released by turns.
                self._keep_held(job, now)
            else:
                cpus = capacity.most_cpus_of(job.request)
                later = _is_for_later(job, now) or self._waits_too_long(job, now)
                yield _Candidate(job, refs_of(job), leaf, cpus, later)

    def _waits_too_long(self, job: Job, now: float) -> bool:
        """Whether a job without a hold has waited for longer than ``BELIEF``, and not for nodes: Slurm says so, or did
        not start it where they were free."""
        since = job.submit if job.eligible is None else job.eligible
        is_stuck = not could_start(job, now) or job.ref in self._working_state.history.backoff
        return job.hold is Hold.NONE and is_stuck and now - since > BELIEF

    def _release_owners(self, job: Job, refs: list[str], now: float) -> None:
        """A job of an account that owns all CPUs, so that there is nobody for whom to hold it."""
        self._admitted.update(refs)
        if job.request.unplaced:
            self._keep_held(job, now)
        else:
            self.releases.append(HoldChange(job.ref, job.account, Reason.WITHIN_ENTITLEMENT))

    def _in_use(self, now: float) -> Iterator[AccountUse]:
        """The non-preemptible jobs that run, and those that nodes are being freed for."""
        kinds, job_arrays, history = (
            self._working_state.kinds,
            self._working_state.job_arrays,
            self._working_state.history,
        )
        running, first = job_arrays.running, job_arrays.patterns.first
        numbers = [number for number in np.unique(running.alike).tolist() if kinds.of(first[number]).non_preemptible]
        found = running.jobs[np.isin(running.alike, numbers)].tolist()
        for job in (*found, *not_yielding(job_arrays, history, kinds)):
            yield AccountUse(kinds.of(job).leaf.path, cpus_held(job), use_until(now, job.time_limit, job.run_time))
        known = job_arrays.find(preemption.preemptor for preemption in history.under_way)
        for preemption in history.under_way:
            preemptor = known.get(preemption.preemptor)
            if preemptor is not None and not preemptor.runs and kinds.of(preemptor).non_preemptible:
                cpus = sum(allocation.cpus for allocation in preemption.allocations)
                until = use_until(now, preemptor.time_limit, preemptor.run_time)
                yield AccountUse(kinds.of(preemptor).leaf.path, cpus, until)

    def _why_not(self, leaf: AccountNode, cpus: int, later: bool) -> Reason:
        if later:
            return Reason.WAITS_FOR_OTHER
        fits = self._working_state.usage.admits_non_preemptible(leaf, cpus)
        return Reason.ACCOUNT_ORDER if fits else Reason.NON_PREEMPTIBLE_BEYOND

    # -- holds ---------------------------------------------------------------------------------------------
    def _keep_held(self, job: Job, now: float | None = None, is_ours: bool = False) -> None:
        """The owner could release a hold set at submission, but not an administrator's."""
        if is_ours or is_held_by_us(job):
            self._held.append(job)
        if job.hold is Hold.USER and may_hold(job):
            self.holds.append(self._change(job, job.ref, now))

    def _hold(self, job: Job, refs: list[str], now: float) -> None:
        self._beyond.append(job)
        self.to_hold.update(refs)
        self.holds.append(self._change(job, joined(job, refs), now))

    def _change(self, job: Job, ref: str, now: float | None) -> HoldChange:
        if job.request.unplaced and job.hold is not Hold.NONE:
            return HoldChange(ref, job.account, Reason.UNPLACED)
        if now is not None and self._working_state.rules.keeps_account_order and _is_for_later(job, now):
            return HoldChange(ref, job.account, Reason.WAITS_FOR_OTHER, waits_for(job, now))
        if now is not None and self._working_state.rules.keeps_account_order and self._waits_too_long(job, now):
            return HoldChange(ref, job.account, Reason.WAITS_TOO_LONG, waits_for(job, now), now)
        return HoldChange(ref, job.account, self.reason_of(job))

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
            tasks = sum(ref not in released for ref in task_refs(job))
            cpus = capacity.most_cpus_of(job.request)
            if tasks and all(cpus <= entitled[index] for index in leaf.path):
                found[leaf.index] = claim + cpus * tasks if _is_for_later(job, now) else inf
        return found

    def kept(self, refs_of: Callable[[Job], list[str]]) -> tuple[str, ...]:
        """What we hold and do not release here; a preemption that is accepted releases its preemptor itself.

        A job that is set aside stays held: nothing tells whether it fits into its account's entitlement, and once it
        ran, it would never be preempted.
        """
        released = {change.ref for change in self.releases}
        arrays = {ref.partition("_")[0] for ref in released if "_" in ref}
        set_aside = self._working_state.job_arrays.set_aside
        kept = [job.ref for job in set_aside if is_held_by_us(job) and not is_out_of_scope(job)]
        for job in self._held:
            if str(job.array_id) in arrays:
                left = [ref for ref in refs_of(job) if ref not in released]
                kept += [joined(job, left)] if left else []
            elif job.ref not in released:
                kept.append(job.ref)
        return tuple(kept)


def _is_for_later(job: Job, now: float) -> bool:
    """Whether the job has a dependency or a begin time."""
    return job.eligible is not None and job.eligible > now


def joined(job: Job, refs: list[str]) -> str:
    """One reference for several tasks of a waiting array (``3_[4-5,7]``), so that one order holds them."""
    if len(refs) == len(job.task_ids) or len(refs) == 1:
        return job.ref if len(refs) > 1 else refs[0]
    return tasks_ref(job.array_id or job.id, (int(ref.partition("_")[2]) for ref in refs))
