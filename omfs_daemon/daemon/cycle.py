"""One cycle: observe, go on with what is under way, plan, validate, execute, record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from omfs_daemon.cluster.holds import could_start
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.cluster.snapshot import NodeObservations, Snapshot
from omfs_daemon.daemon.api.cycle_report import CycleReport, cycle_summary, error_kind
from omfs_daemon.daemon.effects_runner import ALWAYS, EffectsRunner, OrderRight
from omfs_daemon.daemon.learning.victim_predictions import Remaining, no_predictions
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.new_jobs import SINGLE_AGE
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue, NoNodeWorkQueue
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.daemon.plan_input import PlanInput
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.daemon.private_jobs import hide_others, hides_jobs
from omfs_daemon.daemon.questions import Question, Questions
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import GatewayError, OmfsError
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.known_now import memory_stays_on
from omfs_daemon.policy.plan import Plan, Reason, Wait
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.realtime_standing import RealtimeState
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.validator import Conditions, Verdict, validate
from omfs_daemon.preemption.beside import take_beside
from omfs_daemon.preemption.decisions import add_orders, begin_preemptions, go_on
from omfs_daemon.preemption.effects import Effects, with_clock_moved
from omfs_daemon.preemption.follow_up import found_in_slurm, resumed_lately
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.restart import after_restart, odd_jobs, of_other_boots
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import PreemptionChanged, Record, State
from omfs_daemon.preemption.state_fold import state_after
from omfs_daemon.preemption.step import cut_short
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.question import answers_questions

DECISION_KEEPS = 30.0
"""Seconds for which a decision to preempt holds; afterwards no job that still runs is preempted on it."""

MOST_LOOKS = 3
"""Times that an urgent poll looks for nodes that are idle still, before a full one does."""

SET_ASIDE_LOGGED = 20
"""Jobs that one line of the log names."""


class Polled(NamedTuple):
    """All that was polled, and when that began."""

    began: float
    snapshot: Snapshot


class Cycle:
    """Runs one cycle at a time; no loop, no threads, no signals."""

    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        history_database: HistoryDatabase,
        metrics: Metrics,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        work_queue: NodeWorkQueue | None = None,
        facts: Callable[[], NodeObservations] = NodeObservations,
        questions: Questions | None = None,
        remaining: Remaining = no_predictions,
        right: OrderRight = ALWAYS,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._work_queue = work_queue or NoNodeWorkQueue()
        self._questions = questions
        scope = lambda: settings().rules.scope  # noqa: E731
        self._observer = Observer(gateway, clock, lambda: settings().node_licenses, facts, scope)
        self._runner = EffectsRunner(gateway, self._work_queue, journal, history_database, metrics, clock, right)
        self._away_since: float | None = None
        self._inputs = {poll: PlanInput(remaining) for poll in PollKind}
        self._is_first = True
        self._fresh: set[int] = set()
        self._refused_before: frozenset[tuple[str, str]] = frozenset()
        self._set_aside_before: frozenset[int] = frozenset()
        self._noted: dict[str, frozenset[str]] = {}
        self._log = structlog.get_logger("cycle")

    @property
    def has_urgent_polls(self) -> bool:
        """Whether ``run`` can poll for new jobs alone."""
        settings = self._settings()
        return not self._is_first and not settings.dry_run and self._observer.has_urgent_polls(settings.rules)

    @property
    def slurm_settings(self) -> Mapping[str, str]:
        """slurm.conf as Slurm last printed it; empty before the first cycle."""
        return self._observer.slurm_settings

    def observe(self) -> Polled:
        """All jobs, for ``run``. May be called in another thread than ``run`` with ``URGENT``. GatewayError."""
        began = self._clock()
        return Polled(began, self._observer.poll(resumed_lately(self._journal.state, began)))

    def run(self, poll: PollKind = PollKind.FULL, observed: Callable[[], Polled] | None = None) -> CycleReport:
        """One cycle. Errors become part of the report: the daemon waits and tries again, and never gives up.

        ``poll``: with ``URGENT``, jobs are preempted for urgent ones, and nothing else is done. ``observed``: what
        ``observe`` returned or raised; no preemption may have begun since it was called.
        """
        began = self._clock()
        try:
            report = self._run(observed or self.observe) if poll is PollKind.FULL else self._run_for_urgent(began)
        except GatewayError as error:
            self._forget()
            self._away_since = began if self._away_since is None else self._away_since
            away = began - self._away_since
            text = f"Slurm does not answer ({error}): waiting for {away:.0f} s, nothing is decided"
            report = CycleReport(began, text, error=str(error), slurm_error=error_kind(error))
        except OmfsError as error:
            self._forget()
            report = CycleReport(began, str(error), error=str(error))
        except Exception as error:
            # A bug of ours must not end the daemon: nothing would release what it holds.
            self._observer.new_jobs.forget()
            self._log.exception("internal_error", message="nothing is decided in this cycle")
            report = CycleReport(
                began, f"internal error in omfsd ({type(error).__name__}): see the log", error=str(error)
            )
        needs_full = report.needs_full or (poll is PollKind.URGENT and report.error is not None)
        return replace(report, took=self._clock() - report.at, needs_full=needs_full)

    def _forget(self) -> None:
        self._fresh.clear()
        self._observer.new_jobs.forget()

    def _run_for_urgent(self, began: float) -> CycleReport:
        """Only what an urgent job among the new ones needs."""
        found = self._observer.new_jobs.poll(self._is_urgent)
        if found is None:
            return CycleReport(began, "more is new than is asked for singly", needs_full=True)
        if not found.is_urgent:
            return CycleReport(began, "no urgent job is new")
        return self._decide(began, found.snapshot, PollKind.URGENT, found.refs)

    def _is_urgent(self, job: Job) -> bool:
        """An urgent job that waits for no more than nodes."""
        waits = job.state is JobState.PENDING and could_start(job, self._clock())
        return waits and classify(self._settings().rules, job).urgent

    def _run(self, observed: Callable[[], Polled]) -> CycleReport:
        began, snapshot = observed()
        self._note_set_aside(snapshot)
        return self._decide(began, snapshot, PollKind.FULL)

    def _decide(
        self, began: float, snapshot: Snapshot, poll: PollKind, new: frozenset[str] = frozenset()
    ) -> CycleReport:
        """From what is observed to what is done. What is decided is pure; ``carry_out`` does it. ``new``: the jobs for
        which an urgent poll was made."""
        settings = self._settings()
        may_ask = settings.may_ask and answers_questions(self._observer.slurm_settings)
        settings = replace(settings, scheduler_pass=self._observer.scheduler_pass, may_ask=may_ask)
        before, now = self._journal.state, self._clock()
        is_full = poll is PollKind.FULL
        # An urgent poll does not list waiting preemptors, and nothing is concluded about them then.
        answers = self._questions.answers() if self._questions is not None else {}
        observation = Observation(snapshot, self._work_queue.seen, answers=answers)
        boot = self._observer.boot(odd_jobs(before, observation, now) if is_full else frozenset())
        if is_full:
            asked_for = {**_preemptors(before), **of_other_boots(before, boot), **self._runner.shadow.asked_for}
            observation = observation.with_ended(self._observer.ended(observation, asked_for))
        effects, polled = Effects(), snapshot
        if is_full and not settings.dry_run:
            effects, observation = after_restart(before, observation, boot, now, self._observer.unregistered)
            snapshot = observation.snapshot
            # With the releases that slurmctld has forgotten: else those jobs would seem held by somebody else.
            effects.add(self._go_on(began, state_after(before, effects.records), observation, now, settings))
        state = state_after(before, effects.records)
        snapshot, arrays = self._inputs[poll].of(snapshot, state.backoff.doubts, now)
        history = state.preemption_history(settings.rules.methods)
        self._note_set_apart(frozenset(history.set_apart))
        suggested = make_plan(snapshot, history, settings.rules, now, arrays)
        ending = self._ending_proofs(state, observation, suggested, now, settings, arrays)
        if ending.records and not settings.dry_run:
            effects.add(ending)
            state = state_after(before, effects.records)
            history = state.preemption_history(settings.rules.methods)
            suggested = make_plan(snapshot, history, settings.rules, now, arrays)
        conditions = Conditions(settings.max_age, paused=state.pause is not None)
        sure: frozenset[str] = frozenset()
        if not is_full:

            def plan_for(seen: Observation) -> Plan:
                known, its_arrays = self._inputs[poll].of(seen.snapshot, state.backoff.doubts, now)
                return make_plan(known, history, settings.rules, now, its_arrays)

            suggested, observation, sure = self._starts_confirmed(suggested, observation, new, plan_for)
            jobs, nodes = _concerned(suggested, arrays), memory_stays_on(suggested, settings.rules)
            confirmed = self._observer.new_jobs.confirmed(observation.snapshot, jobs, nodes)
            observation = Observation(confirmed, self._work_queue.seen, answers=answers)
            now, conditions = self._clock(), replace(conditions, single_age=SINGLE_AGE)
            snapshot, arrays = self._inputs[poll].of(confirmed, state.backoff.doubts, now)
        verdict = validate(suggested, snapshot, history, settings.rules, now, conditions, arrays)
        if is_full:
            effects.events += self._refusals(verdict, now)
            self._note_without_limit(suggested)
        else:
            # Of other waiting jobs nothing is known now: they are for the next full poll.
            urgent = tuple(planned for planned in verdict.preemptions if planned.urgent)
            verdict = verdict._replace(preemptions=urgent, resumes=(), refused=())
            suggested = suggested.starting_only(sure)
        decided = self._clock()
        if settings.dry_run and is_full:
            self._runner.shadow.observe(suggested, verdict, observation, now, settings)
        elif not settings.dry_run:
            self._runner.shadow.end(now)
            effects.add(begin_preemptions(verdict, state, observation, now, settings))
            if is_full:
                state = state_after(before, effects.records)
                effects.add(take_beside(state, observation, snapshot, now, settings, conditions))
            self._fresh |= {preemption.id for preemption in effects.begun}
            state = state_after(before, effects.records)
            self._fresh &= set(state.preemptions)
            add_orders(effects, state, suggested, verdict, observation, now, settings, is_full)
            if hides_jobs(self._observer.slurm_settings):
                hide_others(effects)
            self._runner.carry_out(effects, observation, settings.nodes, boot)
            if self._questions is not None:
                self._questions.keep(_questions(self._journal.state, observation))
            self._journal.compact_if_large()
        if is_full:
            self._is_first, self._away_since = False, None
            self._observer.new_jobs.begin(polled, suggested.urgent)
            if observation.snapshot is not polled or verdict.resumes:
                self._observer.new_jobs.forget()  # jobs are not, or will not stay, as they were polled
        served = sure.union(one.preemptor for one in verdict.preemptions)
        waits = new.intersection(suggested.urgent) - served
        text = cycle_summary(suggested, verdict, state, settings.dry_run)
        return CycleReport(
            began,
            text,
            settings.rules,
            snapshot,
            suggested,
            verdict,
            seen=now,
            decided=decided,
            needs_full=bool(waits),
        )

    def _starts_confirmed(
        self, plan: Plan, observation: Observation, new: frozenset[str], plan_for: Callable[[Observation], Plan]
    ) -> tuple[Plan, Observation, frozenset[str]]:
        """What the last full poll shows as idle may not be. The plan without the nodes that others have taken since, if
        a new urgent job was to start there, and the new urgent jobs for which all is idle still."""
        for _ in range(MOST_LOOKS):
            starts = [start for start in plan.starts if start.reason is Reason.URGENT and start.ref in new]
            taken = self._observer.new_jobs.taken_since(starts)
            if not taken:
                return plan, observation, frozenset(start.ref for start in starts if taken is not None)
            observation = observation.without_nodes(taken)
            plan = plan_for(observation)
        return plan, observation, frozenset()

    def _ending_proofs(
        self, state: State, observation: Observation, plan: Plan, now: float, settings: Settings, arrays: SnapshotArrays
    ) -> Effects:
        """Those that keep an urgent job waiting: without them others would be preempted for it now."""
        effects, rules, snapshot = Effects(), settings.rules, observation.snapshot
        proofs = [one for one in state.preemptions.values() if one.step is Step.PROVING and not one.preemptor.urgent]
        if not proofs or not any(self._is_short_of_victims(wait, observation, rules) for wait in plan.waits):
            return effects
        others = {number: one for number, one in state.preemptions.items() if one not in proofs}
        history = replace(state, preemptions=others).preemption_history(rules.methods)
        wanted = make_plan(snapshot, history, rules, now, arrays).preemptions
        urgent = [one for one in wanted if one.urgent and one.preemptor not in state.backoff.unstarted]
        nodes = {allocation.node for one in urgent for allocation in one.allocations}
        for proof in proofs:
            if not nodes.isdisjoint(allocation.node for allocation in proof.preemptor.allocations):
                effects.add(cut_short(proof, state, observation, now))
        return effects

    @staticmethod
    def _is_short_of_victims(wait: Wait, observation: Observation, rules: Rules) -> bool:
        job = observation.job(wait.ref) if wait.reason is Reason.NOT_ENOUGH_VICTIMS else None
        return job is not None and classify(rules, job).urgent

    # -- what is under way --------------------------------------------------------------------------------
    def _go_on(self, began: float, state: State, observation: Observation, now: float, settings: Settings) -> Effects:
        """What has become of all that was begun."""
        effects = Effects()
        if self._away_since is not None:
            effects.records += _outage_forgiven(state, began - self._away_since)
        effects.records += found_in_slurm(state, observation, now, settings.methods)
        state = state_after(state, effects.records)
        effects.add(go_on(state, observation, now, settings, self._still_fresh(state, now, settings)))
        return effects

    def _still_fresh(self, state: State, now: float, settings: Settings) -> set[int]:
        """The preemptions that this process has decided itself, lately and without an outage since."""
        keeps = {p.id: DECISION_KEEPS + settings.method_settings.patience(p) for p in state.preemptions.values()}
        return {number for number in self._fresh & set(keeps) if now - state.preemptions[number].begun <= keeps[number]}

    def _not_noted(self, event: str, refs: frozenset[str]) -> frozenset[str]:
        """Those of the jobs that were not there when the event was last looked for."""
        before, self._noted[event] = self._noted.get(event, frozenset()), refs
        return refs - before

    def _note_set_apart(self, refs: frozenset[str]) -> None:
        """Jobs that are set apart are logged once."""
        if fresh := self._not_noted("jobs_set_apart", refs):
            text = "these jobs preempted each other by turns: for an hour they are preempted for urgent jobs only"
            self._log.error("jobs_set_apart", jobs=sorted(fresh), message=text)

    def _note_without_limit(self, plan: Plan) -> None:
        """Real-time jobs without a time limit are logged once."""
        found = frozenset(one.ref for one in plan.realtime if one.state is RealtimeState.NO_LIMIT)
        if fresh := self._not_noted("realtime_without_limit", found):
            text = "without a time limit they have no slowdown, so they are treated as ordinary jobs"
            self._log.warning("realtime_without_limit", jobs=sorted(fresh)[:SET_ASIDE_LOGGED], message=text)

    def _note_set_aside(self, snapshot: Snapshot) -> None:
        """Jobs that are set aside are logged once."""
        found = {job.id: job for job in snapshot.jobs.values() if job.set_aside and not is_out_of_scope(job)}
        fresh = [job for number, job in found.items() if number not in self._set_aside_before]
        self._set_aside_before = frozenset(found)
        if fresh:
            named = [f"{brief_ref(job.ref)} ({job.user}): {job.set_aside}" for job in fresh[:SET_ASIDE_LOGGED]]
            self._log.warning("jobs_set_aside", number=len(fresh), jobs=named)

    def _refusals(self, verdict: Verdict, now: float) -> list[JobEvent]:
        """Refusals are recorded like orders, once for as long as they stay the same."""
        present = frozenset((refused.ref, refused.reason.value) for refused in verdict.refused)
        fresh = [r for r in verdict.refused if (r.ref, r.reason.value) not in self._refused_before]
        self._refused_before = present
        if fresh:
            self._log.warning("validator_refused", reasons=dict(Counter(r.reason.value for r in fresh)))
        return [JobEvent(now, r.ref, "", r.account, "validator_refused", r.text) for r in fresh]


def _outage_forgiven(state: State, away: float) -> list[Record]:
    """Time in which Slurm did not answer does not count against victims or preemptors."""
    return [PreemptionChanged(with_clock_moved(preemption, away)) for preemption in state.preemptions.values()]


def _concerned(plan: Plan, arrays: SnapshotArrays) -> list[Job]:
    """The jobs of the preemptions for urgent jobs."""
    urgent = [planned for planned in plan.preemptions if planned.urgent]
    refs = {ref for one in urgent for ref in (one.preemptor, *(victim.ref for victim in one.victims))}
    return list({job.id: job for job in arrays.job_arrays.find(refs).values()}.values())


def _questions(state: State, observation: Observation) -> dict[int, Question]:
    """Those that preemptions wait for."""
    found: dict[int, Question] = {}
    for number, preemption in state.preemptions.items():
        job = observation.job(preemption.preemptor.ref) if preemption.asks else None
        if job is not None:
            found[number] = Question(job.id, tuple(each.node for each in preemption.preemptor.allocations))
    return found


def _preemptors(state: State) -> dict[str, int | str]:
    """They may have come and gone between two polls. Tasks of arrays have raw ids of their own only once they start."""
    refs = (preemption.preemptor.ref for preemption in state.preemptions.values())
    return {ref: int(ref) if ref.isdecimal() else ref for ref in refs}
