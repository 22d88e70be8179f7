"""The validator: the one place that refuses what must never happen, whatever a policy suggests.

It trusts nothing that the plan claims, but checks every victim against the snapshot. It counts what it accepts, so that
two preemptions of one plan cannot use the same CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.holds import could_start
from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.preempt_methods import ENDS, PreemptionCost
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.free_resources import freed_resources
from omfs_daemon.policy.arrays.job_arrays import cpus_held
from omfs_daemon.policy.arrays.placement import serves
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.known_now import AskedLately, asked_lately, is_known_now
from omfs_daemon.policy.plan import Plan, PlannedPreemption, PlannedResume, Reason, Start
from omfs_daemon.policy.realtime_queue import due_need
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.start_checks.answer import Answer, AnswerKind
from omfs_daemon.policy.start_checks.static_rules import StartChecks, leaving_victims
from omfs_daemon.policy.victims.eligibility import (
    are_borrowers,
    give_way_to_own,
    has_preemptions_left,
    is_mature,
    may_take_all,
)
from omfs_daemon.policy.victims.need import ResourceNeed
from omfs_daemon.policy.victims.victim_costs import cost_of_victim
from omfs_daemon.policy.working_state import WorkingState


class RefusalReason(StrEnum):
    """Why the validator refuses an action; ``REFUSAL_TEXT`` explains each."""

    PAUSED = "paused"
    STALE = "stale"
    TOO_MANY = "too_many_at_once"
    NO_SUCH_PREEMPTOR = "preemptor_not_waiting"
    NO_SUCH_VICTIM = "victim_not_running"
    ALREADY_BUSY = "already_part_of_a_preemption"
    NOT_ALLOWED = "method_not_allowed"
    NOT_POSSIBLE = "method_not_possible"
    NO_ROOM = "no_room_to_move_memory_to"
    URGENT_VICTIM = "victim_is_urgent"
    TOO_SLOW = "victim_above_its_slowdown_threshold"
    NOT_DUE = "preemptor_not_due"
    NEVER_PREEMPTED = "victim_is_non_preemptible"
    EXEMPT = "victim_is_exempted"
    IN_QUANTUM = "victim_inside_its_quantum"
    PREEMPTED_TOO_OFTEN = "victim_preempted_too_often"
    NOT_OVER = "account_at_or_below_its_entitlement"
    NOT_ENTITLED = "preemptor_beyond_its_entitlement"
    DOES_NOT_FIT = "preemptor_would_not_start"
    NEEDLESS = "a_victim_is_not_needed"
    CPUS_TAKEN = "cpus_of_suspended_job_are_taken"
    WOULD_NOT_START = "slurm_would_not_start_preemptor"
    IN_VAIN_BEFORE = "same_victims_in_vain"


REFUSAL_TEXT: Mapping[RefusalReason, str] = {
    RefusalReason.PAUSED: "the daemon is paused",
    RefusalReason.STALE: "the observation of the cluster is too old to act on",
    RefusalReason.TOO_MANY: "more victims than policy.max_preemptions_per_cycle; the rest follow in the next cycle",
    RefusalReason.NO_SUCH_PREEMPTOR: "the preemptor does not wait for nodes",
    RefusalReason.NO_SUCH_VICTIM: "a victim is not running",
    RefusalReason.ALREADY_BUSY: "a job is part of another preemption",
    RefusalReason.NOT_ALLOWED: "a victim may not be preempted by this method",
    RefusalReason.NOT_POSSIBLE: "a victim cannot be preempted by this method at present",
    RefusalReason.NO_ROOM: "there is not enough room to move the victims' memory to",
    RefusalReason.URGENT_VICTIM: "an urgent or real-time job is never preempted",
    RefusalReason.TOO_SLOW: "would put the victim above its slowdown threshold",
    RefusalReason.NOT_DUE: "the preemptor's slowdown is below what its class acts at",
    RefusalReason.NEVER_PREEMPTED: "a victim is non-preemptible",
    RefusalReason.EXEMPT: "an operator has exempted a victim from being preempted",
    RefusalReason.IN_QUANTUM: "a victim has not run for its quantum",
    RefusalReason.PREEMPTED_TOO_OFTEN: "a victim was preempted as often as policy.max_preemptions_per_hour allows",
    RefusalReason.NOT_OVER: "it would take from an account at or below its entitlement",
    RefusalReason.NOT_ENTITLED: "the preemptor is beyond its account's entitlement",
    RefusalReason.DOES_NOT_FIT: "the preemptor would not fit even then",
    RefusalReason.NEEDLESS: "a victim is not needed",
    RefusalReason.CPUS_TAKEN: "the CPUs of the suspended job are not free",
    RefusalReason.WOULD_NOT_START: "Slurm would not start the preemptor",
    RefusalReason.IN_VAIN_BEFORE: "the same victims were preempted for it in vain",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """``max_age``: how old a snapshot may be, in seconds; ``paused``: whether the daemon is paused.

    ``single_age``: how old an answer about each job of a preemption may be, where these jobs were asked for singly
    since the snapshot was taken. Others may have ended or started since, so then the victims must free all that the
    preemptor takes, but for memory that is idle on nodes that were asked for, and accounts' use does not count; None:
    all jobs are as old as the snapshot.
    """

    max_age: float
    paused: bool = False
    single_age: float | None = None


class RefusedAction(NamedTuple):
    """What was refused, and why; ``ref``: the preemptor or the job to resume; ``answer``: why Slurm would not start
    it, where that is the reason."""

    ref: str
    account: str
    reason: RefusalReason
    answer: Answer | None = None

    @property
    def text(self) -> str:
        return REFUSAL_TEXT[self.reason] + (self.answer.why if self.answer is not None else "")


class Verdict(NamedTuple):
    """What may be carried out, and what was refused.

    ``costs``: the estimated cost of each accepted victim, by ``Job.ref`` and method. ``answers``: by preemptor, whether
    Slurm would start it on the freed nodes; one that is not there needs no answer.
    """

    preemptions: tuple[PlannedPreemption, ...]
    resumes: tuple[PlannedResume, ...]
    refused: tuple[RefusedAction, ...]
    costs: Mapping[tuple[str, str], PreemptionCost] = {}
    answers: Mapping[str, Answer] = {}


def validate(
    plan: Plan,
    snapshot: Snapshot,
    history: PreemptionHistory,
    rules: Rules,
    now: float,
    conditions: Conditions,
    arrays: SnapshotArrays | None = None,
) -> Verdict:
    """Accept the preemptions and resumes of a plan that are safe. Pure. ``arrays``: as for the planner."""
    if not plan.preemptions and not plan.resumes:
        return Verdict((), (), ())
    blanket = _blanket_refusal(snapshot, now, conditions)
    if blanket is not None:
        refused = [RefusedAction(r.preemptor, r.account, blanket) for r in plan.preemptions]
        return Verdict((), (), (*refused, *(RefusedAction(r.ref, r.account, blanket) for r in plan.resumes)))
    validation = _Validation(arrays or SnapshotArrays(snapshot), history, rules, now)
    if conditions.single_age is not None:
        validation.lately = asked_lately(snapshot, now - conditions.single_age)
    return validation.run(plan)


def _blanket_refusal(snapshot: Snapshot, now: float, conditions: Conditions) -> RefusalReason | None:
    if conditions.paused:
        return RefusalReason.PAUSED
    return RefusalReason.STALE if now - snapshot.taken > conditions.max_age else None


class _Validation:
    """The state of one call of :func:`validate`, updated in the order in which the plan was made."""

    def __init__(self, arrays: SnapshotArrays, history: PreemptionHistory, rules: Rules, now: float) -> None:
        self.history, self.rules, self.now = history, rules, now
        self.working_state = WorkingState(arrays, history, rules)
        self.capacity, self.usage = self.working_state.capacity, self.working_state.usage
        self.busy = {ref for preemption in history.under_way for ref in (preemption.preemptor, *preemption.victims)}
        self.preemptions_left = rules.max_preemptions_per_cycle
        self.start_checks = StartChecks(arrays, history, now)
        self.answers: dict[str, Answer] = {}
        self.jobs: dict[str, Job] = {}
        self.lately: AskedLately | None = None
        """What was asked for singly and lately; None: everything is as new."""
        self.promised = {one.node for preemption in history.under_way for one in preemption.allocations}
        """The nodes of preemptors that victims are preempted for."""

    def run(self, plan: Plan) -> Verdict:
        self.jobs = self.working_state.job_arrays.find(_named_in(plan))
        # Promises last: one that found no idle CPUs must not take those that the plan gave to a resume.
        waiting: list[Start | PlannedResume] = [*plan.starts, *plan.resumes, *plan.promises]
        waiting.sort(key=lambda action: action.after)
        preemptions: list[PlannedPreemption] = []
        resumes: list[PlannedResume] = []
        refused: list[RefusedAction] = []
        done = 0
        for before in range(len(plan.preemptions) + 1):
            while done < len(waiting) and waiting[done].after <= before:
                self._check_start(waiting[done], resumes, refused)
                done += 1
            if before < len(plan.preemptions):
                self._check_preemption(plan.preemptions[before], preemptions, refused)
        for late in waiting[done:]:
            self._check_start(late, resumes, refused)
        return Verdict(tuple(preemptions), tuple(resumes), tuple(refused), self._costs(preemptions), self.answers)

    def _costs(self, preemptions: Iterable[PlannedPreemption]) -> dict[tuple[str, str], PreemptionCost]:
        availability = self.working_state.availability
        return {
            (victim.ref, victim.method): availability.cost(self.jobs[victim.ref], victim.method)
            for planned in preemptions
            for victim in planned.victims
        }

    def _check_start(
        self, action: Start | PlannedResume, resumes: list[PlannedResume], refused: list[RefusedAction]
    ) -> None:
        if isinstance(action, Start):
            self._count_start(action)
            return
        reason = self._why_not_resume(action)
        if reason is None:
            self._count(self.jobs[action.ref], action.ref, action.allocations, now=True)
            resumes.append(action)
        else:
            refused.append(RefusedAction(action.ref, action.account, reason))

    def _check_preemption(
        self, planned: PlannedPreemption, preemptions: list[PlannedPreemption], refused: list[RefusedAction]
    ) -> None:
        reason = self._why_not(planned)
        if reason is not None:
            refused.append(RefusedAction(planned.preemptor, planned.account, reason))
            return
        job = self.jobs[planned.preemptor]
        victims = leaving_victims(((self.jobs[one.ref], one.method) for one in planned.victims), self.rules)
        answer = self.start_checks.answer(job, planned.allocations, victims)
        if answer.kind is AnswerKind.NO:
            wrong = RefusalReason.WOULD_NOT_START
            refused.append(RefusedAction(planned.preemptor, planned.account, wrong, answer))
            return
        if self.start_checks.is_on and not planned.suspended:
            self.answers[planned.preemptor] = answer
        self.start_checks.count(job, planned.allocations, victims)
        self.working_state.preempt([(self.jobs[victim.ref], victim.method) for victim in planned.victims])
        self._count(self.jobs[planned.preemptor], planned.preemptor, planned.allocations, now=False)
        self.busy.update(victim.ref for victim in planned.victims)
        self.preemptions_left -= len(planned.victims)
        self.promised.update(allocation.node for allocation in planned.allocations)
        preemptions.append(planned)

    def _count_start(self, start: Start) -> None:
        """Slurm carries out starts and promises, so there is nothing to refuse; those that are possible count."""
        job = self._waiting(start.ref)
        if job is None or start.ref in self.busy or job.state is not JobState.PENDING:
            return
        for free, now in ((self.capacity.now, True), (self.capacity.then, False)):
            if serves(job.request, free, start.allocations):
                self.start_checks.count(job, start.allocations)
                self._count(job, start.ref, start.allocations, now)
                return

    def _count(self, job: Job, ref: str, allocations: tuple[Allocation, ...], now: bool) -> None:
        need = self.working_state.need_of(job)
        (self.working_state.start if now else self.working_state.promise)(need, allocations, add_non_preemptible=True)
        self.busy.add(ref)

    # -- one preemption --------------------------------------------------------------------------------------
    def _why_not(self, planned: PlannedPreemption) -> RefusalReason | None:
        job = self._waiting(planned.preemptor)
        if job is None or planned.suspended != (job.state is JobState.SUSPENDED):
            return RefusalReason.NO_SUCH_PREEMPTOR
        refs = [victim.ref for victim in planned.victims]
        if self.lately is not None and not is_known_now(
            planned, self.jobs, self.lately, self.promised, self.working_state
        ):
            return RefusalReason.STALE
        if self.busy.intersection((planned.preemptor, *refs)) or len(set(refs)) != len(refs):
            return RefusalReason.ALREADY_BUSY
        if len(refs) > self.preemptions_left and self.preemptions_left < self.rules.max_preemptions_per_cycle:
            return RefusalReason.TOO_MANY
        need: ResourceNeed | None = self.working_state.need_of(job)
        if planned.reason is Reason.REALTIME:
            need = due_need(self.working_state, job, self.now)
        if need is None:
            return RefusalReason.NOT_DUE
        if any(set(refs).issuperset(tried) for tried in self.history.tried.get(planned.preemptor, ())):
            return RefusalReason.IN_VAIN_BEFORE
        slowest = self._slowest(planned)
        for victim in planned.victims:
            reason = self._why_not_victim(self.jobs.get(victim.ref), victim.method, need, slowest)
            if reason is not None:
                return reason
        return self._why_not_account(need, planned) or self._why_not_place(need, planned)

    def _waiting(self, ref: str) -> Job | None:
        job = self.jobs.get(ref)
        if job is None:
            return None
        if job.state is JobState.SUSPENDED and job.ref in self.history.preempted:
            return job
        return job if job.state is JobState.PENDING and could_start(job, self.now) else None

    def _slowest(self, planned: PlannedPreemption) -> float:
        """Seconds until its last victim that is preempted lets go."""
        cost, known = self.working_state.availability.cost, self.jobs
        preempted = [victim for victim in planned.victims if victim.method != ENDS.name and victim.ref in known]
        return max((cost(known[victim.ref], victim.method).preempt for victim in preempted), default=0.0)

    def _why_not_victim(self, job: Job | None, method: str, need: ResourceNeed, slowest: float) -> RefusalReason | None:
        if job is None or not job.runs:
            return RefusalReason.NO_SUCH_VICTIM
        if method == ENDS.name:
            ends = 0 < self.working_state.remaining.longest(job) <= slowest
            return None if ends else RefusalReason.NOT_POSSIBLE
        job_class = self.working_state.kinds.of(job).job_class
        if job_class.is_never_preempted:
            return RefusalReason.URGENT_VICTIM
        if not job_class.methods:
            return RefusalReason.NEVER_PREEMPTED
        if self.rules.exemptions.of(job, self.now) is not None:
            return RefusalReason.EXEMPT
        if not job_class.allows(method):
            return RefusalReason.NOT_ALLOWED
        if method not in self.working_state.availability.usable(job, job_class):
            return RefusalReason.NOT_POSSIBLE
        if need.realtime is not None:
            outlay = self.working_state.availability.cost(job, method).total
            is_eligible = cost_of_victim(job, need.realtime, self.rules, outlay).is_eligible
            return None if is_eligible else RefusalReason.TOO_SLOW
        urgent = need.urgent
        if not urgent and not has_preemptions_left(job.ref, self.history, self.rules, self.now):
            return RefusalReason.PREEMPTED_TOO_OFTEN
        if not urgent and not is_mature(job, job_class, self.history, self.now):
            return RefusalReason.IN_QUANTUM
        return None

    def _why_not_account(self, need: ResourceNeed, planned: PlannedPreemption) -> RefusalReason | None:
        victims = [self.jobs[victim.ref] for victim in planned.victims]
        givers = [(self.working_state.kinds.of(victim).leaf, cpus_held(victim)) for victim in victims]
        if need.urgent or need.realtime is not None:
            allowed = self.rules.urgent_may_take_entitled or are_borrowers(givers, self.usage)
            return None if allowed else RefusalReason.NOT_OVER
        if need.non_preemptible and not self.usage.admits_non_preemptible(need.leaf, need.cpus):
            return RefusalReason.NOT_ENTITLED
        leaves, submitted = np.array([leaf.index for leaf, _ in givers]), np.array([job.submit for job in victims])
        if give_way_to_own(need, leaves, submitted).all():
            return None
        if not self.usage.entitles(need.leaf, need.cpus):
            return RefusalReason.NOT_ENTITLED
        return None if may_take_all(need.leaf, need.cpus, givers, self.usage) else RefusalReason.NOT_OVER

    def _why_not_place(self, need: ResourceNeed, planned: PlannedPreemption) -> RefusalReason | None:
        """The preemptor must fit on exactly the planned allocations, and not on their nodes with one victim less."""
        node_arrays, blocks = self.working_state.node_arrays, self.working_state.blocks
        trial = self.capacity.then.copy()
        preempted = [(self.jobs[victim.ref], victim.method) for victim in planned.victims]
        if not self.working_state.availability.fit_together(preempted):
            return RefusalReason.NO_ROOM
        freed = [freed_resources(node_arrays, job, self.rules.method(method), blocks) for job, method in preempted]
        for given in freed:
            trial.give(given)
        fits = (
            planned.allocations == need.place(trial)
            if need.allocations
            else serves(need.request, trial, planned.allocations)
        )
        if not fits:
            return RefusalReason.DOES_NOT_FIT
        only = node_arrays.indices_of(allocation.node for allocation in planned.allocations)
        for given in freed:
            trial.take(given)
            if need.place(trial, only=only) is not None:
                return RefusalReason.NEEDLESS
            trial.give(given)
        return None

    # -- one resume -------------------------------------------------------------------------------------------
    def _why_not_resume(self, resume: PlannedResume) -> RefusalReason | None:
        """Slurm resumes a job on busy CPUs without an error (scontrol resume), so this must be checked here."""
        job = self.jobs.get(resume.ref)
        if job is None or job.state is not JobState.SUSPENDED or job.ref not in self.history.preempted:
            return RefusalReason.NO_SUCH_PREEMPTOR
        if resume.ref in self.busy:
            return RefusalReason.ALREADY_BUSY
        fits = resume.allocations == self.working_state.need_of(job).place(self.capacity.now)
        return None if fits else RefusalReason.CPUS_TAKEN


def _named_in(plan: Plan) -> Iterator[str]:
    """The references of all jobs in the plan."""
    yield from (start.ref for start in (*plan.starts, *plan.promises))
    yield from (resume.ref for resume in plan.resumes)
    for planned in plan.preemptions:
        yield planned.preemptor
        yield from (victim.ref for victim in planned.victims)
