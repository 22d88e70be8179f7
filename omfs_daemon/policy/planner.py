"""The policy: one pass over the waiting jobs. ``Snapshot + ledger + rules + now`` give a ``Plan``.

The order of the pass:

1. Urgent jobs: what fits starts; else regular jobs are stopped, longest remaining first; else it waits in its
   own queue, before all regular ones (UJFB, section IV).
2. Regular jobs whose account uses less than its entitlement: what fits starts; else jobs of accounts
   above their entitlement are stopped (OMFS, Algorithm 1, lines 31-36).
3. All others: what fits on what is idle may borrow (line 26), the rest waits (line 28).

Inside each, stopped jobs come first, then Slurm's own priority counts. A job that is never stopped and would take
its account beyond the entitlement waits whatever is idle (line 23).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.cluster.jobs import Hold, Job, JobState, Share
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.accounts import Entity
from omfs_daemon.policy.capacity import Capacity, Frontier
from omfs_daemon.policy.plan import (
    Band,
    Change,
    Plan,
    Rank,
    Reason,
    Reclaim,
    Resume,
    Start,
    Victim,
    Wait,
)
from omfs_daemon.policy.queue import BAND_STEP, band_of, could_start, in_order, is_held_by_us, nice_in
from omfs_daemon.policy.rules import JobClass, Rules, classify
from omfs_daemon.policy.usage import Usage, account_rows, count_running, cpus_held, is_fixed
from omfs_daemon.policy.victims import Choice, Need, Pool, candidates, choose


def plan(snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float) -> Plan:
    """What should happen now. Pure: no I/O, no clock of its own."""
    return _Pass(snapshot, ledger, rules, now).run()


class _Pass:
    """The working state of one pass; lives for one call of :func:`plan`."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float) -> None:
        self.snapshot, self.ledger, self.rules, self.now = snapshot, ledger, rules, now
        self._classes: dict[tuple[object, ...], JobClass] = {}
        self.capacity = Capacity(snapshot, ledger)
        self.usage = Usage(rules.tree, self.capacity.size)
        count_running(self.usage, snapshot, ledger, self.class_of)
        self.real = self._real_usage()
        self._pool: Pool | None = None
        self._stops_left = rules.max_stops_per_cycle
        self._in_vain: dict[tuple[int, bool], Frontier] = {}
        self._to_hold: set[str] = set()
        self.expected = list(self.usage.all)
        self.starts: list[Start] = []
        self.reclaims: list[Reclaim] = []
        self.resumes: list[Resume] = []
        self.holds: list[Change] = []
        self.releases: list[Change] = []
        self.waits: list[Wait] = []
        self.bands: dict[str, Band] = {}

    # -- the pass ---------------------------------------------------------------------------------------
    def run(self) -> Plan:
        waiting = [job for job in self.snapshot.jobs.values() if job.state is JobState.PENDING]
        in_transit = {
            ref for commitment in self.ledger.commitments for ref in (commitment.beneficiary, *commitment.victims)
        }
        pending = [job for job in waiting if job.ref not in in_transit] if in_transit else waiting
        self._gate_fixed(pending)
        startable = [job for job in pending if could_start(job, self.now)]
        stopped = [job for job in self._suspended_by_us() if job.ref not in in_transit]
        urgent: list[Job] = []
        regular: list[Job] = []
        for job in startable:
            (urgent if self.class_of(job).urgent else regular).append(job)
        for job in in_order(urgent, self.ledger.stopped):
            self._urgent(job)
        self._regular(in_order([*stopped, *regular], self.ledger.stopped))
        return Plan(
            taken=self.snapshot.taken,
            now=self.now,
            starts=tuple(self.starts),
            reclaims=tuple(self.reclaims),
            resumes=tuple(self.resumes),
            holds=self._holds(),
            releases=tuple(self.releases),
            ranks=self._ranks(pending),
            waits=tuple(self.waits),
            accounts=account_rows(self.usage, waiting, self.real),
        )

    def _urgent(self, job: Job) -> None:
        need = Need(job.request, self._leaf(job), self.capacity.cpus_of(job.request), urgent=True)
        for ref in _task_refs(job):
            shares = self.capacity.place(job.request)
            if shares is not None:
                self._start(job, ref, need, shares, Reason.URGENT)
                self.bands[ref] = Band.URGENT
            elif not self._reclaim(job, ref, need):
                self.bands[ref] = Band.URGENT
                break

    def _regular(self, order: list[Job]) -> None:
        borrowers = []
        for job in order:
            left = self._entitled(job)
            if left:
                borrowers.append((job, left))
        for job, refs in borrowers:
            self._borrow(job, refs)

    def _entitled(self, job: Job) -> list[str]:
        """Start or make room for what its account owns; returns the tasks that are beyond it."""
        leaf = self._leaf(job)
        suspended = job.state is JobState.SUSPENDED
        cpus = cpus_held(job) if suspended else self.capacity.cpus_of(job.request)
        refs = _task_refs(job)
        if not self.usage.entitles(leaf, cpus):
            return refs
        fixed = is_fixed(self.class_of(job))
        need = Need(job.request, leaf, cpus, urgent=False, shares=job.shares if suspended else ())
        for at, ref in enumerate(refs):
            if not self.usage.entitles(leaf, cpus):
                return refs[at:]
            if fixed and not self._may_add_fixed(job, leaf, cpus):
                self._wait(job, ref, Reason.NON_PREEMPTIBLE_BEYOND)
                return []
            shares = need.place(self.capacity)
            if shares is not None:
                self._start(job, ref, need, shares, Reason.ENTITLED)
                self._expect(ref, need)
            elif not self._reclaim(job, ref, need):
                self._expect(ref, need)
                return []
        return []

    def _borrow(self, job: Job, refs: list[str]) -> None:
        """What is idle is lent to anybody (OMFS, Algorithm 1, line 26)."""
        leaf = self._leaf(job)
        suspended = job.state is JobState.SUSPENDED
        fixed = is_fixed(self.class_of(job))
        if not suspended and job.request.cpus > self.capacity.total_free and not fixed:
            self._borrower_waits(job, refs[0])
            return
        cpus = cpus_held(job) if suspended else self.capacity.cpus_of(job.request)
        need = Need(job.request, leaf, cpus, urgent=False, shares=job.shares if suspended else ())
        for ref in refs:
            if fixed and not self._may_add_fixed(job, leaf, cpus):
                self._wait(job, ref, Reason.NON_PREEMPTIBLE_BEYOND)
                return
            shares = need.place(self.capacity)
            if shares is None:
                self._borrower_waits(job, ref)
                return
            self._start(job, ref, need, shares, Reason.BORROWS)
            if ref in self.ledger.stopped:
                self.bands[ref] = Band.STOPPED_BORROWER

    def _borrower_waits(self, job: Job, ref: str) -> None:
        if ref in self.ledger.stopped:
            self.bands[ref] = Band.STOPPED_BORROWER
        self._wait(job, ref, Reason.BEYOND_ENTITLEMENT)

    # -- decisions ----------------------------------------------------------------------------------------
    def _start(self, job: Job, ref: str, need: Need, shares: tuple[Share, ...], reason: Reason) -> None:
        if job.state is JobState.SUSPENDED:
            self.resumes.append(Resume(ref, job.account, shares))
            for share in shares:  # its memory is its own already
                self.capacity.take((share._replace(memory=0),), replace(job.request, gres=()))
        else:
            self.starts.append(Start(ref, job.account, reason, shares))
            self.capacity.take(shares, job.request)
            if job.hold is not Hold.NONE and is_fixed(self.class_of(job)):
                self.releases.append(Change(ref, job.account, Reason.WITHIN_SHARE))
        self._count(job, need)

    def _count(self, job: Job, need: Need) -> None:
        """From here on the job counts as running; an unheld fixed one was in ``fixed`` already."""
        self.usage.add(need.leaf, need.cpus)
        if is_fixed(self.class_of(job)) and job.hold is not Hold.NONE:
            self.usage.add_fixed(need.leaf, need.cpus)

    def _reclaim(self, job: Job, ref: str, need: Need) -> bool:
        """Make room for the job by stopping others; False with the reason noted if that cannot be."""
        reason, choice = self._room_for(job, ref, need)
        if choice is None:
            self._wait(job, ref, reason)
            return False
        self.reclaims.append(
            Reclaim(
                beneficiary=ref,
                account=job.account,
                reason=reason,
                urgent=need.urgent,
                suspended=job.state is JobState.SUSPENDED,
                shares=choice.shares,
                victims=tuple(Victim(c.job.ref, c.job.account, method, c.cpus) for c, method in choice.victims),
                submitted=job.submit,
                numbers={
                    "cpus": need.cpus,
                    "idle": self.capacity.total_free,
                    "entitled": self.usage.entitled[need.leaf.index],
                    "used": self.usage.all[need.leaf.index],
                },
            )
        )
        self._apply(job, need, choice)
        return True

    def _room_for(self, job: Job, ref: str, need: Need) -> tuple[Reason, Choice | None]:
        if self.ledger.backoff.get(ref, 0.0) > self.now:
            return Reason.TRIED_IN_VAIN, None
        if self._stops_left <= 0:
            return Reason.ENOUGH_STOPS, None
        in_vain = self._in_vain.setdefault((need.leaf.index, need.urgent), Frontier())
        if not need.shares and in_vain.covers(job.request):
            return Reason.NOT_ENOUGH_TO_STOP, None
        choice = choose(need, self._candidates(), self.capacity, self.usage, self.rules)
        if choice is None:
            if not need.shares:
                in_vain.add(job.request)
            return Reason.NOT_ENOUGH_TO_STOP, None
        if not choice.victims:
            return Reason.BEING_FREED, None
        if len(choice.victims) > self._stops_left and self.reclaims:
            return Reason.ENOUGH_STOPS, None
        return (Reason.URGENT if need.urgent else Reason.ENTITLED), choice

    def _apply(self, job: Job, need: Need, choice: Choice) -> None:
        """Go on planning as if the victims were gone and the beneficiary there."""
        gone = {candidate.job.ref for candidate, _ in choice.victims}
        for candidate, method in choice.victims:
            self.usage.remove(candidate.leaf, candidate.cpus)
            self.capacity.give([self.capacity.freed_by(candidate.job, METHODS[method].frees_memory)])
        self.capacity.take(choice.shares, job.request if not need.shares else replace(job.request, gres=()))
        self._candidates().remove(gone)
        self._stops_left -= len(gone)
        self._count(job, need)

    def _wait(self, job: Job, ref: str, reason: Reason) -> None:
        self.waits.append(Wait(ref, job.account, reason))

    def _expect(self, ref: str, need: Need) -> None:
        """Rank the job among those that should start next, as long as its account's share is not ranked full."""
        path = need.leaf.path
        if any(self.expected[index] + need.cpus <= self.usage.entitled[index] for index in path):
            self.bands[ref] = Band.STOPPED_ENTITLED if ref in self.ledger.stopped else Band.ENTITLED
            for index in path:
                self.expected[index] += need.cpus

    # -- jobs that are never stopped --------------------------------------------------------------------------
    def _gate_fixed(self, pending: Iterable[Job]) -> None:
        """Hold what may not start; let go what no rule forbids any more.

        Waiting jobs that nothing holds count in full, oldest first, for Slurm may start them at any moment.
        """
        unheld = []
        for job in pending:
            job_class = self.class_of(job)
            if is_fixed(job_class):
                if job.hold is Hold.NONE:
                    unheld.append(job)
                elif is_held_by_us(job) and job.hold is Hold.USER:
                    self.holds.append(Change(job.ref, job.account, Reason.NON_PREEMPTIBLE_BEYOND))
            elif is_held_by_us(job):
                reason = Reason.URGENT if job_class.urgent else Reason.MAY_BE_STOPPED
                self.releases.append(Change(job.ref, job.account, reason))
        for job in sorted(unheld, key=lambda job: (job.submit, job.id)):
            leaf = self._leaf(job)
            cpus = self.capacity.cpus_of(job.request)
            for ref in _task_refs(job):
                if self.usage.admits_fixed(leaf, cpus):
                    self.usage.add_fixed(leaf, cpus)
                else:
                    self._to_hold.add(job.ref)
                    self.holds.append(Change(ref, job.account, Reason.NON_PREEMPTIBLE_BEYOND))

    def _holds(self) -> tuple[Change, ...]:
        """A job that may start in this very pass need not be held first."""
        released = {change.ref for change in self.releases} | {reclaim.beneficiary for reclaim in self.reclaims}
        return tuple(change for change in self.holds if change.ref not in released)

    def _may_add_fixed(self, job: Job, leaf: Entity, cpus: int) -> bool:
        """A held job must fit on top of what runs or may start at any moment; an unheld one counts already."""
        if job.hold is Hold.NONE:
            return job.ref not in self._to_hold
        return self.usage.admits_fixed(leaf, cpus)

    # -- small things -----------------------------------------------------------------------------------------
    def class_of(self, job: Job) -> JobClass:
        key = (job.partition, job.request.partitions, job.qos, job.account, job.comment)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = classify(self.rules, job)
        return found

    def _leaf(self, job: Job) -> Entity:
        return self.rules.tree.leaf(job.account)

    def _candidates(self) -> Pool:
        if self._pool is None:
            found = candidates(self.snapshot, self.ledger, self.rules, self.now, self.class_of)
            self._pool = Pool(found, self.capacity)
        return self._pool

    def _suspended_by_us(self) -> list[Job]:
        return [
            job
            for job in self.snapshot.jobs.values()
            if job.state is JobState.SUSPENDED and job.ref in self.ledger.stopped
        ]

    def _real_usage(self) -> list[int]:
        real = [0] * len(self.rules.tree.entities)
        for job in self.snapshot.jobs.values():
            if job.runs:
                for index in self._leaf(job).path:
                    real[index] += cpus_held(job)
        return real

    def _ranks(self, pending: Iterable[Job]) -> tuple[Rank, ...]:
        """The ranks that differ from what Slurm has; beyond ``rank_depth`` jobs keep Slurm's own.

        Where nobody waits, order does not matter and nothing is told to Slurm.
        """
        if not self.waits:
            return ()
        wanted = dict(list(self.bands.items())[: self.rules.rank_depth])
        own_steps = {reclaim.beneficiary for reclaim in self.reclaims}
        found = []
        for job in pending:
            if job.nice > -BAND_STEP // 2 and job.tasks == 1 and job.ref not in wanted:
                continue
            for ref in _task_refs(job):
                band = wanted.get(ref, Band.NONE)
                if band_of(job) is not band and ref not in own_steps:
                    found.append(Rank(ref, band, nice_in(job, band)))
        return tuple(found)


def _task_refs(job: Job) -> list[str]:
    """References of the single tasks of a waiting array, or of the job itself."""
    if job.tasks == 1:
        return [job.ref]
    return [f"{job.array_id}_{task}" for task in job.task_ids]
