"""The safety gate: the one place that refuses what must never happen, whatever a policy suggests.

It rests on nothing that the plan claims: it looks at the snapshot itself, victim by victim. What it accepts it counts,
so that two reclaims of one plan cannot both live on the same CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState, Request
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.cluster.snapshot import Ledger, Snapshot
from omfs_daemon.policy.capacity import Capacity
from omfs_daemon.policy.plan import Plan, Reclaim, Resume
from omfs_daemon.policy.queue import could_start
from omfs_daemon.policy.rules import Rules, classify
from omfs_daemon.policy.usage import Usage, count_running, cpus_held, is_fixed
from omfs_daemon.policy.victims import Need, has_stops_left, is_mature, takes_fairly


class Refusal(StrEnum):
    """Why the gate refuses. ``REFUSAL_TEXT`` holds the sentence for people."""

    PAUSED = "paused"
    STALE = "stale"
    TOO_MANY = "too_many_at_once"
    NO_SUCH_BENEFICIARY = "beneficiary_not_waiting"
    NO_SUCH_VICTIM = "victim_not_running"
    ALREADY_BUSY = "already_part_of_a_stop"
    NOT_ALLOWED = "method_not_allowed"
    URGENT_VICTIM = "victim_is_urgent"
    NEVER_STOPPED = "victim_may_never_be_stopped"
    IN_QUANTUM = "victim_inside_its_quantum"
    STOPPED_TOO_OFTEN = "victim_stopped_too_often"
    NOT_OVER = "account_at_or_below_its_entitlement"
    NOT_ENTITLED = "beneficiary_beyond_its_entitlement"
    DOES_NOT_FIT = "beneficiary_would_not_start"
    NEEDLESS = "a_victim_is_not_needed"
    CPUS_TAKEN = "cpus_of_suspended_job_are_taken"


REFUSAL_TEXT: Mapping[Refusal, str] = {
    Refusal.PAUSED: "the daemon is paused",
    Refusal.STALE: "the picture of the cluster is too old to act on",
    Refusal.TOO_MANY: "more stops at once than policy.max_stops_per_cycle allows; the rest follows in the next cycle",
    Refusal.NO_SUCH_BENEFICIARY: "the job that it is for does not wait for nodes",
    Refusal.NO_SUCH_VICTIM: "a job to be stopped does not run",
    Refusal.ALREADY_BUSY: "a job is part of another stop",
    Refusal.NOT_ALLOWED: "a job may not be stopped by this method",
    Refusal.URGENT_VICTIM: "an urgent job is never stopped",
    Refusal.NEVER_STOPPED: "a job that may never be stopped would be",
    Refusal.IN_QUANTUM: "a job has not run for its quantum",
    Refusal.STOPPED_TOO_OFTEN: "a job was stopped as often as policy.max_stops_per_hour allows",
    Refusal.NOT_OVER: "it would take from an account at or below its entitlement",
    Refusal.NOT_ENTITLED: "the job that it is for is beyond its account's entitlement",
    Refusal.DOES_NOT_FIT: "the job that it is for would not fit even then",
    Refusal.NEEDLESS: "a job would be stopped needlessly",
    Refusal.CPUS_TAKEN: "the CPUs of the suspended job are not free",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the gate must know besides: how many seconds old a snapshot may be, and whether we are paused."""

    max_age: float
    paused: bool = False


class Refused(NamedTuple):
    """What was refused, for whom, and why."""

    ref: str
    account: str
    reason: Refusal


class Verdict(NamedTuple):
    """What may be enacted, and what may not."""

    reclaims: tuple[Reclaim, ...]
    resumes: tuple[Resume, ...]
    refused: tuple[Refused, ...]


def judge(plan: Plan, snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float, conditions: Conditions) -> Verdict:
    """Let pass the stops and resumes of a plan that are safe; pure."""
    if not plan.reclaims and not plan.resumes:
        return Verdict((), (), ())
    blanket = _blanket_refusal(snapshot, now, conditions)
    if blanket is not None:
        refused = [Refused(r.beneficiary, r.account, blanket) for r in plan.reclaims]
        return Verdict((), (), (*refused, *(Refused(r.ref, r.account, blanket) for r in plan.resumes)))
    return _Judge(snapshot, ledger, rules, now).judge(plan)


def _blanket_refusal(snapshot: Snapshot, now: float, conditions: Conditions) -> Refusal | None:
    if conditions.paused:
        return Refusal.PAUSED
    return Refusal.STALE if now - snapshot.taken > conditions.max_age else None


class _Judge:
    """The books while one plan is judged."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, rules: Rules, now: float) -> None:
        self.snapshot, self.ledger, self.rules, self.now = snapshot, ledger, rules, now
        self.capacity = Capacity(snapshot, ledger)
        self.usage = Usage(rules.tree, self.capacity.size)
        count_running(self.usage, snapshot, ledger, lambda job: classify(rules, job))
        self.jobs = {job.ref: job for job in snapshot.jobs.values()}
        self.by_task = {
            f"{job.array_id}_{task}": job for job in snapshot.jobs.values() if job.tasks > 1 for task in job.task_ids
        }
        self.busy = {ref for c in ledger.commitments for ref in (c.beneficiary, *c.victims)}
        self.stops_left = rules.max_stops_per_cycle

    def judge(self, plan: Plan) -> Verdict:
        reclaims, resumes, refused = [], [], []
        for reclaim in plan.reclaims:
            reason = self._why_not(reclaim)
            if reason is None:
                self._count(reclaim)
                reclaims.append(reclaim)
            else:
                refused.append(Refused(reclaim.beneficiary, reclaim.account, reason))
        for resume in plan.resumes:
            reason = self._why_not_resume(resume)
            if reason is None:
                job = self.jobs[resume.ref]
                self.capacity.take([share._replace(memory=0) for share in job.shares], _no_gres(job))
                self.busy.add(resume.ref)
                resumes.append(resume)
            else:
                refused.append(Refused(resume.ref, resume.account, reason))
        return Verdict(tuple(reclaims), tuple(resumes), tuple(refused))

    # -- one reclaim --------------------------------------------------------------------------------------
    def _why_not(self, reclaim: Reclaim) -> Refusal | None:
        job = self._waiting(reclaim.beneficiary)
        if job is None or reclaim.suspended != (job.state is JobState.SUSPENDED):
            return Refusal.NO_SUCH_BENEFICIARY
        urgent = classify(self.rules, job).urgent
        refs = [victim.ref for victim in reclaim.victims]
        if self.busy.intersection((reclaim.beneficiary, *refs)) or len(set(refs)) != len(refs):
            return Refusal.ALREADY_BUSY
        if len(refs) > self.stops_left and self.stops_left < self.rules.max_stops_per_cycle:
            return Refusal.TOO_MANY
        for victim in reclaim.victims:
            reason = self._why_not_victim(self.jobs.get(victim.ref), victim.method, urgent)
            if reason is not None:
                return reason
        return self._why_not_account(job, reclaim, urgent) or self._why_not_place(job, reclaim, urgent)

    def _waiting(self, ref: str) -> Job | None:
        job = self.jobs.get(ref) or self.by_task.get(ref)
        if job is None:
            return None
        if job.state is JobState.SUSPENDED and job.ref in self.ledger.stopped:
            return job
        return job if job.state is JobState.PENDING and could_start(job, self.now) else None

    def _why_not_victim(self, job: Job | None, method: str, urgent: bool) -> Refusal | None:
        if job is None or not job.runs:
            return Refusal.NO_SUCH_VICTIM
        job_class = classify(self.rules, job)
        if job_class.urgent:
            return Refusal.URGENT_VICTIM
        if not job_class.methods:
            return Refusal.NEVER_STOPPED
        if method not in job_class.methods:
            return Refusal.NOT_ALLOWED
        if not has_stops_left(job, self.ledger, self.rules, self.now):
            return Refusal.STOPPED_TOO_OFTEN
        if not urgent and not is_mature(job, self.ledger, self.rules, self.now):
            return Refusal.IN_QUANTUM
        return None

    def _why_not_account(self, job: Job, reclaim: Reclaim, urgent: bool) -> Refusal | None:
        leaf = self.rules.tree.leaf(job.account)
        victims = [self.jobs[victim.ref] for victim in reclaim.victims]
        givers = [self.rules.tree.leaf(victim.account) for victim in victims]
        if urgent:
            covered = self.rules.urgent_may_take_entitled or all(self.usage.is_borrowing(giver) for giver in givers)
            return None if covered else Refusal.NOT_OVER
        cpus = self._cpus(job)
        if not self.usage.entitles(leaf, cpus):
            return Refusal.NOT_ENTITLED
        if is_fixed(classify(self.rules, job)) and not self._admits(job, cpus):
            return Refusal.NOT_ENTITLED
        given = zip(givers, map(cpus_held, victims), strict=True)
        return None if takes_fairly(leaf, cpus, given, self.usage) else Refusal.NOT_OVER

    def _admits(self, job: Job, cpus: int) -> bool:
        return self.usage.admits_fixed(self.rules.tree.leaf(job.account), cpus)

    def _why_not_place(self, job: Job, reclaim: Reclaim, urgent: bool) -> Refusal | None:
        """The beneficiary must fit on the very nodes that the plan names, and with one victim less it must not."""
        suspended = job.state is JobState.SUSPENDED
        leaf = self.rules.tree.leaf(job.account)
        need = Need(job.request, leaf, self._cpus(job), urgent, job.shares if suspended else ())
        wanted = [share.node for share in reclaim.shares]
        freed = [
            self.capacity.freed_by(self.jobs[victim.ref], METHODS[victim.method].frees_memory)
            for victim in reclaim.victims
        ]
        if need.place(self.capacity.freed_copy(freed), only=wanted) is None:
            return Refusal.DOES_NOT_FIT
        for i in range(len(freed)):
            rest = freed[:i] + freed[i + 1 :]
            if need.place(self.capacity.freed_copy(rest), only=wanted) is not None:
                return Refusal.NEEDLESS
        return None

    def _cpus(self, job: Job) -> int:
        return cpus_held(job) if job.state is JobState.SUSPENDED else self.capacity.cpus_of(job.request)

    def _count(self, reclaim: Reclaim) -> None:
        """An accepted reclaim: its victims are gone, its beneficiary is there."""
        job = self.jobs.get(reclaim.beneficiary) or self.by_task[reclaim.beneficiary]
        for victim in reclaim.victims:
            gone = self.jobs[victim.ref]
            self.usage.remove(self.rules.tree.leaf(gone.account), cpus_held(gone))
            self.capacity.give([self.capacity.freed_by(gone, METHODS[victim.method].frees_memory)])
        self.usage.add(self.rules.tree.leaf(job.account), self._cpus(job), is_fixed(classify(self.rules, job)))
        self.capacity.take(reclaim.shares, _no_gres(job) if reclaim.suspended else job.request)
        self.busy.update((reclaim.beneficiary, *(victim.ref for victim in reclaim.victims)))
        self.stops_left -= len(reclaim.victims)

    # -- one resume -------------------------------------------------------------------------------------------
    def _why_not_resume(self, resume: Resume) -> Refusal | None:
        """Slurm resumes a job over busy CPUs without a word (scontrol resume), so the check stands here."""
        job = self.jobs.get(resume.ref)
        if job is None or job.state is not JobState.SUSPENDED or job.ref not in self.ledger.stopped:
            return Refusal.NO_SUCH_BENEFICIARY
        if resume.ref in self.busy:
            return Refusal.ALREADY_BUSY
        return None if self.capacity.has_free_cpus(job.shares) else Refusal.CPUS_TAKEN


def _no_gres(job: Job) -> Request:
    """A suspended job has its generic resources already."""
    return replace(job.request, gres=())
