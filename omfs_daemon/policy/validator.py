"""The safety gate: the one place that refuses what must never happen, whatever a policy suggests.

It rests on nothing that the plan claims: it looks at the snapshot itself, victim by victim. What it accepts it counts,
so that two reclaims of one plan cannot both live on the same CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.arrays.job_arrays import cpus_held
from omfs_daemon.policy.arrays.free_resources import parcel_of
from omfs_daemon.policy.arrays.placement import serves
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.policy.plan import Resume
from omfs_daemon.policy.plan import Start
from omfs_daemon.cluster.holds import could_start
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from omfs_daemon.policy.working_state import Standing
from omfs_daemon.policy.victims.eligibility import has_stops_left
from omfs_daemon.policy.victims.eligibility import is_mature
from omfs_daemon.policy.victims.eligibility import takes_fairly
from omfs_daemon.policy.victims.eligibility import takes_from_borrowers
from omfs_daemon.policy.victims.need import Need


class Refusal(StrEnum):
    """Why the gate refuses. ``REFUSAL_TEXT`` holds the sentence for people."""

    PAUSED = "paused"
    STALE = "stale"
    TOO_MANY = "too_many_at_once"
    NO_SUCH_BENEFICIARY = "beneficiary_not_waiting"
    NO_SUCH_VICTIM = "victim_not_running"
    ALREADY_BUSY = "already_part_of_a_stop"
    NOT_ALLOWED = "method_not_allowed"
    NOT_POSSIBLE = "method_not_possible"
    NO_ROOM = "no_room_to_move_memory_to"
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
    Refusal.NOT_POSSIBLE: "a job cannot be stopped by this method at present",
    Refusal.NO_ROOM: "there is not room enough to move the memory of the jobs to",
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


def judge(
    plan: Plan,
    snapshot: Snapshot,
    ledger: Ledger,
    rules: Rules,
    now: float,
    conditions: Conditions,
    scene: Scene | None = None,
) -> Verdict:
    """Let pass the stops and resumes of a plan that are safe; pure. ``scene``: as for the planner."""
    if not plan.reclaims and not plan.resumes:
        return Verdict((), (), ())
    blanket = _blanket_refusal(snapshot, now, conditions)
    if blanket is not None:
        refused = [Refused(r.beneficiary, r.account, blanket) for r in plan.reclaims]
        return Verdict((), (), (*refused, *(Refused(r.ref, r.account, blanket) for r in plan.resumes)))
    return _Judge(scene or Scene(snapshot), ledger, rules, now).judge(plan)


def _blanket_refusal(snapshot: Snapshot, now: float, conditions: Conditions) -> Refusal | None:
    if conditions.paused:
        return Refusal.PAUSED
    return Refusal.STALE if now - snapshot.taken > conditions.max_age else None


class _Judge:
    """The books while one plan is judged, carried on in the order in which the plan was made."""

    def __init__(self, scene: Scene, ledger: Ledger, rules: Rules, now: float) -> None:
        self.ledger, self.rules, self.now = ledger, rules, now
        self.standing = Standing(scene, ledger, rules)
        self.capacity, self.usage = self.standing.capacity, self.standing.usage
        self.busy = {ref for stop in ledger.commitments for ref in (stop.beneficiary, *stop.victims)}
        self.stops_left = rules.max_stops_per_cycle
        self.jobs: dict[str, Job] = {}

    def judge(self, plan: Plan) -> Verdict:
        self.jobs = self.standing.crowd.find(_named_in(plan))
        # Promises last: one that found no idle CPUs must not take those that the plan gave to a resume.
        waiting: list[Start | Resume] = [*plan.starts, *plan.resumes, *plan.promises]
        waiting.sort(key=lambda one: one.after)
        reclaims: list[Reclaim] = []
        resumes: list[Resume] = []
        refused: list[Refused] = []
        done = 0
        for before in range(len(plan.reclaims) + 1):
            while done < len(waiting) and waiting[done].after <= before:
                self._judge_start(waiting[done], resumes, refused)
                done += 1
            if before < len(plan.reclaims):
                self._judge_reclaim(plan.reclaims[before], reclaims, refused)
        for late in waiting[done:]:
            self._judge_start(late, resumes, refused)
        return Verdict(tuple(reclaims), tuple(resumes), tuple(refused))

    def _judge_start(self, one: Start | Resume, resumes: list[Resume], refused: list[Refused]) -> None:
        if isinstance(one, Start):
            self._believe(one)
            return
        reason = self._why_not_resume(one)
        if reason is None:
            self._count(self.jobs[one.ref], one.ref, one.shares, now=True)
            resumes.append(one)
        else:
            refused.append(Refused(one.ref, one.account, reason))

    def _judge_reclaim(self, reclaim: Reclaim, reclaims: list[Reclaim], refused: list[Refused]) -> None:
        reason = self._why_not(reclaim)
        if reason is not None:
            refused.append(Refused(reclaim.beneficiary, reclaim.account, reason))
            return
        self.standing.stop([(self.jobs[victim.ref], victim.method) for victim in reclaim.victims])
        self._count(self.jobs[reclaim.beneficiary], reclaim.beneficiary, reclaim.shares, now=False)
        self.busy.update(victim.ref for victim in reclaim.victims)
        self.stops_left -= len(reclaim.victims)
        reclaims.append(reclaim)

    def _believe(self, start: Start) -> None:
        """Starts and promises are Slurm's to do, so there is nothing to refuse; those that are possible count."""
        job = self._waiting(start.ref)
        if job is None or start.ref in self.busy or job.state is not JobState.PENDING:
            return
        for free, now in ((self.capacity.now, True), (self.capacity.then, False)):
            if serves(job.request, free, start.shares):
                self._count(job, start.ref, start.shares, now)
                return

    def _count(self, job: Job, ref: str, shares: tuple[Share, ...], now: bool) -> None:
        need = self.standing.need_of(job)
        (self.standing.start if now else self.standing.promise)(need, shares, add_fixed=True)
        self.busy.add(ref)

    # -- one reclaim --------------------------------------------------------------------------------------
    def _why_not(self, reclaim: Reclaim) -> Refusal | None:
        job = self._waiting(reclaim.beneficiary)
        if job is None or reclaim.suspended != (job.state is JobState.SUSPENDED):
            return Refusal.NO_SUCH_BENEFICIARY
        refs = [victim.ref for victim in reclaim.victims]
        if self.busy.intersection((reclaim.beneficiary, *refs)) or len(set(refs)) != len(refs):
            return Refusal.ALREADY_BUSY
        if len(refs) > self.stops_left and self.stops_left < self.rules.max_stops_per_cycle:
            return Refusal.TOO_MANY
        need = self.standing.need_of(job)
        for victim in reclaim.victims:
            reason = self._why_not_victim(self.jobs.get(victim.ref), victim.method, need.urgent)
            if reason is not None:
                return reason
        return self._why_not_account(need, reclaim) or self._why_not_place(need, reclaim)

    def _waiting(self, ref: str) -> Job | None:
        job = self.jobs.get(ref)
        if job is None:
            return None
        if job.state is JobState.SUSPENDED and job.ref in self.ledger.stopped:
            return job
        return job if job.state is JobState.PENDING and could_start(job, self.now) else None

    def _why_not_victim(self, job: Job | None, method: str, urgent: bool) -> Refusal | None:
        if job is None or not job.runs:
            return Refusal.NO_SUCH_VICTIM
        job_class = self.standing.kinds.of(job).job_class
        if job_class.urgent:
            return Refusal.URGENT_VICTIM
        if not job_class.methods:
            return Refusal.NEVER_STOPPED
        if method not in (*job_class.methods, job_class.last_resort):
            return Refusal.NOT_ALLOWED
        if method not in self.standing.ways.usable(job, job_class):
            return Refusal.NOT_POSSIBLE
        if not has_stops_left(job.ref, self.ledger, self.rules, self.now):
            return Refusal.STOPPED_TOO_OFTEN
        if not urgent and not is_mature(job, job_class, self.ledger, self.now):
            return Refusal.IN_QUANTUM
        return None

    def _why_not_account(self, need: Need, reclaim: Reclaim) -> Refusal | None:
        victims = [self.jobs[victim.ref] for victim in reclaim.victims]
        givers = [(self.standing.kinds.of(victim).leaf, cpus_held(victim)) for victim in victims]
        if need.urgent:
            allowed = self.rules.urgent_may_take_entitled or takes_from_borrowers(givers, self.usage)
            return None if allowed else Refusal.NOT_OVER
        if not self.usage.entitles(need.leaf, need.cpus):
            return Refusal.NOT_ENTITLED
        if need.fixed and not self.usage.admits_fixed(need.leaf, need.cpus):
            return Refusal.NOT_ENTITLED
        return None if takes_fairly(need.leaf, need.cpus, givers, self.usage) else Refusal.NOT_OVER

    def _why_not_place(self, need: Need, reclaim: Reclaim) -> Refusal | None:
        """The beneficiary must fit on exactly what the plan names, and with one victim less on none of those nodes."""
        machine, trial = self.standing.machine, self.capacity.then.copy()
        stopped = [(self.jobs[victim.ref], victim.method) for victim in reclaim.victims]
        if not self.standing.ways.fit_together(stopped):
            return Refusal.NO_ROOM
        freed = [parcel_of(machine, job, self.rules.method(method)) for job, method in stopped]
        for given in freed:
            trial.give(given)
        fits = reclaim.shares == need.place(trial) if need.shares else serves(need.request, trial, reclaim.shares)
        if not fits:
            return Refusal.DOES_NOT_FIT
        only = machine.indices_of(share.node for share in reclaim.shares)
        for given in freed:
            trial.take(given)
            if need.place(trial, only=only) is not None:
                return Refusal.NEEDLESS
            trial.give(given)
        return None

    # -- one resume -------------------------------------------------------------------------------------------
    def _why_not_resume(self, resume: Resume) -> Refusal | None:
        """Slurm resumes a job over busy CPUs without a word (scontrol resume), so the check stands here."""
        job = self.jobs.get(resume.ref)
        if job is None or job.state is not JobState.SUSPENDED or job.ref not in self.ledger.stopped:
            return Refusal.NO_SUCH_BENEFICIARY
        if resume.ref in self.busy:
            return Refusal.ALREADY_BUSY
        fits = resume.shares == self.standing.need_of(job).place(self.capacity.now)
        return None if fits else Refusal.CPUS_TAKEN


def _named_in(plan: Plan) -> Iterator[str]:
    """The references of all jobs that the plan speaks of."""
    yield from (start.ref for start in (*plan.starts, *plan.promises))
    yield from (resume.ref for resume in plan.resumes)
    for reclaim in plan.reclaims:
        yield reclaim.beneficiary
        yield from (victim.ref for victim in reclaim.victims)
