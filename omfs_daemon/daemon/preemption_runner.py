"""Carries preemptions through: writes the journal, then has the executor send the orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.preempt_methods import OUT
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.daemon.executor import Executor
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import GatewayError, JournalError
from omfs_daemon.policy.plan import TEXT, PlannedPreemption, Reason
from omfs_daemon.preemption.begin import preemptor_of, victim_of
from omfs_daemon.preemption.effects import order_keys, preempted_record
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.next_step import next_state
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, PreemptionOutcome, Step, VictimState, absorb
from omfs_daemon.preemption.records import JobEvent, PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import PreemptionChanged, PreemptorBackoff, Record, VictimBackoff
from omfs_daemon.preemption.step_orders import not_resumed, orders_after_preempting, orders_for
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import OrderRefusal

DECISION_KEEPS = 30.0
"""Seconds for which a decision to preempt holds; afterwards no job that still runs is preempted on it."""

_MOST_DOUBLINGS = 6
"""How often a victim's back-off is doubled at most."""

_AGAIN_AFTER = 2.0
"""Seconds after which orders without visible effect are sent again."""


class PreemptionRunner:
    """Preemptions under way are in the journal's state; kept here are only which of them this process began without a
    failure since, and when orders were last sent."""

    def __init__(
        self,
        executor: Executor,
        journal: Journal,
        history_database: HistoryDatabase,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._journal = journal
        self._history_database = history_database
        self._metrics = metrics
        self._clock = clock
        self._ordered: dict[int, tuple[float, frozenset[tuple[str, str]]]] = {}
        self._fresh: set[int] = set()
        self._log = structlog.get_logger("preemption")

    # -- beginning ------------------------------------------------------------------------------------------
    def begin(self, planned: PlannedPreemption, observation: Observation, settings: Settings) -> Preemption | None:
        """Start a preemption that the validator accepted; None if one of its jobs is gone."""
        preemptor = observation.job(planned.preemptor)
        victims = [observation.job(victim.ref) for victim in planned.victims]
        if preemptor is None or any(victim is None for victim in victims):
            return None
        now = self._clock()
        preemption = Preemption(
            id=self._journal.state.next_preemption,
            step=Step.PLANNED,
            begun=now,
            since=now,
            reason=planned.reason.value,
            preemptor=preemptor_of(
                planned,
                preemptor,
                self._journal.state.preempted.get(planned.preemptor),
                {name for victim in victims if victim is not None for name, _ in victim.request.gres},
                settings,
            ),
            victims=tuple(
                victim_of(v, job, settings) for v, job in zip(planned.victims, victims, strict=True) if job is not None
            ),
        )
        for ref in preemption.refs:
            self._executor.work_queue.forget(ref)  # earlier work says nothing about this preemption
        # The first step has no orders: the first one that is recorded is the second.
        self._fresh.add(preemption.id)
        try:
            return self.advance(preemption, observation, settings)
        finally:
            if self._journal.state.next_preemption > preemption.id:  # else it was not recorded, and nothing has begun
                self._record_begin(preemption)

    # -- going on -------------------------------------------------------------------------------------------
    def advance(self, preemption: Preemption, observation: Observation, settings: Settings) -> Preemption:
        """Go as far as the observation allows. Raises GatewayError or JournalError; the preemption then stays at its
        step, and no further victim is preempted on the old decision."""
        try:
            return self._advance(preemption, observation, settings)
        except (GatewayError, JournalError):
            self._fresh.discard(preemption.id)
            raise

    def _advance(self, preemption: Preemption, observation: Observation, settings: Settings) -> Preemption:
        given: set[Action] = set()
        while not preemption.step.is_over:
            self._record_preempted(preemption, observation, settings)
            following = next_state(
                preemption, observation, self._clock(), settings.method_settings, self._is_fresh(preemption, settings)
            )
            if following is preemption:
                return self._repeat(preemption, observation, settings)
            following = self._came_and_went(following)
            if following.step.is_over:
                self._record_end(following)
            left = self._left_behind(following, observation, settings)
            self._journal.write(
                PreemptionChanged(following), *left, *self._consequences(following, settings.retry_after)
            )
            # What was ordered on this observation is not missing in the next step.
            wanted = [
                action for action in orders_for(following, observation, settings.method_settings) if action not in given
            ]
            given.update(wanted)
            preemption = self._order(following, wanted, observation, settings)
            if preemption.step in (Step.STOPPING, Step.STARTING, Step.RETURNING, Step.UNDOING):
                return preemption
        self._ordered.pop(preemption.id, None)
        self._fresh.discard(preemption.id)
        self._comment_end(preemption, observation, settings)
        return preemption

    def _came_and_went(self, preemption: Preemption) -> Preemption:
        """A preemptor that is gone may have run and ended between two polls: Slurm remembers it for a while."""
        ref = preemption.preemptor.ref
        if (
            preemption.outcome is not PreemptionOutcome.PREEMPTOR_GONE
            or preemption.started_at is not None
            or not ref.isdecimal()
        ):
            return preemption
        job = self._executor.find(int(ref))
        if job is None or job.start is None or job.start < int(preemption.begun):
            return preemption
        return replace(preemption, outcome=PreemptionOutcome.STARTED, started_at=job.start)

    def _is_fresh(self, preemption: Preemption, settings: Settings) -> bool:
        """Slow methods extend the time for which the decision holds."""
        keeps = DECISION_KEEPS + settings.method_settings.patience(preemption)
        return preemption.id in self._fresh and self._clock() - preemption.begun <= keeps

    def _repeat(self, preemption: Preemption, observation: Observation, settings: Settings) -> Preemption:
        """Orders without effect are sent again after a while; new ones at once."""
        wanted = orders_for(preemption, observation, settings.method_settings)
        ordered_at, ordered = self._ordered.get(preemption.id, (float("-inf"), frozenset()))
        if self._clock() - ordered_at < _AGAIN_AFTER and order_keys(wanted) <= ordered:
            return preemption
        return self._order(preemption, wanted, observation, settings)

    def _order(
        self, preemption: Preemption, wanted: list[Action], observation: Observation, settings: Settings
    ) -> Preemption:
        """Send the step's orders; refusals are recorded, because the next step depends on them."""
        self._ordered[preemption.id] = (self._clock(), order_keys(wanted))
        refusals = self._executor.give(wanted, observation, settings.nodes)
        weighty = [refusal for refusal in refusals if self._matters(preemption, refusal)]
        for refusal in refusals:
            self._log.info(
                "step_order_refused",
                preemption=preemption.id,
                step=preemption.step.value,
                job=refusal.ref,
                error=refusal.message,
            )
        if preemption.step is Step.STOPPING and not weighty:
            self._executor.give(
                orders_after_preempting(preemption, observation, settings.method_settings), observation, settings.nodes
            )
        absorbed = absorb(preemption, weighty)
        if absorbed is not preemption:
            self._journal.write(PreemptionChanged(absorbed))
        return absorbed

    def _matters(self, preemption: Preemption, refusal: OrderRefusal) -> bool:
        """In PREPARING what the preemptor was refused; in STOPPING what a victim was."""
        if preemption.step is Step.PREPARING:
            return refusal.ref == preemption.preemptor.ref
        return preemption.step is Step.STOPPING and refusal.ref != preemption.preemptor.ref

    def _record_preempted(self, preemption: Preemption, observation: Observation, settings: Settings) -> None:
        """Record each victim as preempted once it is observed so, whatever becomes of the preemption."""
        if preemption.step is Step.PLANNED:
            return
        for victim in preemption.victims:
            job = observation.job(victim.ref)
            if job is None or victim.ref in self._journal.state.preempted:
                continue
            if job.state in (JobState.PENDING, JobState.SUSPENDED):
                now = self._clock()
                self._journal.write(preempted_record(preemption, victim, now))
                self._record_victim(preemption, victim, job, observation, settings, now)

    def _left_behind(self, preemption: Preemption, observation: Observation, settings: Settings) -> list[Record]:
        """Victims that a node still keeps from running when the preemption is undone: ``reconcile`` resumes them."""
        if preemption.step is not Step.UNDONE:
            return []
        now = self._clock()
        return [
            preempted_record(preemption, victim, now)
            for victim in not_resumed(preemption, observation, settings.method_settings)
        ]

    def _consequences(self, preemption: Preemption, retry_after: float) -> list[Record]:
        """Back-offs after a preemption that failed: the same is not tried again at once."""
        if preemption.step is not Step.UNDOING:
            return []
        if preemption.outcome in (
            PreemptionOutcome.TOO_OLD,
            PreemptionOutcome.STARTED,
            PreemptionOutcome.PREEMPTOR_GONE,
        ):
            return []
        until = self._clock() + retry_after
        if preemption.outcome is PreemptionOutcome.VICTIM_STAYED or preemption.outcome is PreemptionOutcome.REFUSED:
            victims = {victim.ref for victim in preemption.victims}
            stubborn = [ref for ref, _ in preemption.refused if ref in victims] or sorted(
                victims - set(self._journal.state.preempted)
            )
            spared: list[Record] = [self._victim_backoff(ref, retry_after) for ref in stubborn]
            return spared or [PreemptorBackoff(preemption.preemptor.ref, until)]
        return [PreemptorBackoff(preemption.preemptor.ref, until)]

    def _victim_backoff(self, ref: str, retry_after: float) -> VictimBackoff:
        """Doubled each time, so that a preemptor does not wait again and again for the same job."""
        times = self._journal.state.failures.get(ref, 0) + 1
        return VictimBackoff(ref, self._clock() + retry_after * 2 ** min(times - 1, _MOST_DOUBLINGS), times)

    # -- history, log, and metrics ----------------------------------------------------------------------------
    def _record_begin(self, preemption: Preemption) -> None:
        names = ", ".join(victim.ref for victim in preemption.victims)
        text = f"preempting {names} for it: {TEXT[Reason(preemption.reason)]}"
        preemptor = preemption.preemptor
        data: dict[str, object] = {"victims": [victim.ref for victim in preemption.victims]}
        ref, user, account = preemptor.ref, preemptor.user, preemptor.account
        event = JobEvent(preemption.begun, ref, user, account, "preemption_started", text, data)
        self._history_database.record_events([event])
        self._log.info("preemption_started", preemption=preemption.id, preemptor=ref, account=account, victims=names)

    def _record_victim(
        self,
        preemption: Preemption,
        victim: VictimState,
        job: Job,
        observation: Observation,
        settings: Settings,
        now: float,
    ) -> None:
        preemptor = preemption.preemptor
        kind = "urgent" if preemptor.urgent else "entitled"
        text = f"preempted ({victim.method}) for job {preemptor.ref} of account {preemptor.account}, which is {kind}"
        paid = self._paid(preemption, victim, job, observation, settings, now)
        data: dict[str, object] = {
            "preemptor": preemptor.ref,
            "method": victim.method,
            "seconds": round(paid.seconds, 3),
            "bytes": paid.size,
            "lost_seconds": paid.lost,
        }
        self._history_database.record_events(
            [JobEvent(now, victim.ref, victim.user, victim.account, "preempted", text, data)]
        )
        self._history_database.record_costs([paid])
        self._metrics.observe_cost(paid)

    def _paid(
        self,
        preemption: Preemption,
        victim: VictimState,
        job: Job,
        observation: Observation,
        settings: Settings,
        now: float,
    ) -> PaidCost:
        """What it has cost, by our own clock and as omfs-run or the nodes report."""
        traits = settings.method_settings.method(victim).traits
        seconds = max(0.0, now - (preemption.since if preemption.step is Step.STOPPING else preemption.begun))
        moving, size = 0.0, 0
        run, work = run_report(job), observation.work(job.ref)
        if traits.launched and run is not None:
            moving, size = min(run.seconds, seconds), run.size  # capped: the job's owner can write the job comment
        elif traits.on_nodes and work is not None:
            moving, size = work.seconds, work.moved
            self._metrics.observe_delay(victim.method, work.slowest)
        lost = 0.0 if traits.keeps_work else max(0.0, now - victim.start)
        name, nodes = victim.method, max(1, len(job.on_nodes))
        return PaidCost(now, victim.ref, victim.user, victim.account, name, OUT, seconds, moving, size, lost, nodes)

    def _record_end(self, preemption: Preemption) -> None:
        """Record the end, before the journal drops the preemption: a crash in between repeats this."""
        preemptor, now = preemption.preemptor, self._clock()
        outcome = preemption.outcome or PreemptionOutcome.CHANGED
        self._history_database.record_preemption(preemption)
        waited = None if preemption.started_at is None else preemption.started_at - preemptor.submitted
        text = {
            PreemptionOutcome.STARTED: f"runs, {waited or 0.0:.1f} s after it was submitted",
            PreemptionOutcome.PREEMPTOR_GONE: "was gone before it started; the jobs preempted for it are put back",
            PreemptionOutcome.NOT_STARTED: "did not start in time on the nodes that were freed; undone",
            PreemptionOutcome.VICTIM_STAYED: "; ".join(
                ["a job could not be preempted; undone", *(message for _, message in preemption.refused[:3])]
            ),
            PreemptionOutcome.REFUSED: "Slurm refused: " + "; ".join(message for _, message in preemption.refused[:3]),
            PreemptionOutcome.TOO_OLD: "the decision was too old when it could be executed; undone, and planned again",
            PreemptionOutcome.CHANGED: "the situation changed before anything was done",
        }[outcome]
        number, ref, user, account = preemption.id, preemptor.ref, preemptor.user, preemptor.account
        event = JobEvent(now, ref, user, account, outcome.value, text, {"preemption": number})
        self._history_database.record_events([event])
        if preemption.step is Step.DONE:
            self._log.info(
                "preemption_completed", preemption=number, preemptor=ref, outcome=outcome.value, waited=waited
            )
        else:
            self._log.info("preemption_undone", preemption=number, preemptor=ref, outcome=outcome.value, waited=waited)
        policy = "urgent" if preemptor.urgent else "omfs"
        for victim in preemption.victims:
            self._metrics.count_preemption(policy, victim.method, preemption.reason, outcome.value)
        if preemption.started_at is not None:
            self._metrics.observe_reclaim(max(0.0, preemption.started_at - preemption.begun))

    def _comment_end(self, preemption: Preemption, observation: Observation, settings: Settings) -> None:
        """Tell the owners; a preempted victim keeps its mark until it runs again."""
        if preemption.outcome is PreemptionOutcome.CHANGED:
            return
        untouched = [
            v.ref for v in preemption.victims if v.ref not in self._journal.state.preempted and observation.job(v.ref)
        ]
        wanted: list[orders.Order] = []
        if untouched:
            text = f"[omfs] was to be preempted for job {preemption.preemptor.ref}"
            wanted.append(orders.MarkJobs(tuple(untouched), MarkWord.RELEASED, text))
        if preemption.outcome is PreemptionOutcome.STARTED:
            text = f"[omfs] started by preempting {len(preemption.victims)} jobs ({preemption.reason})"
            wanted.append(orders.MarkJobs((preemption.preemptor.ref,), MarkWord.RELEASED, text))
        self._executor.give(wanted, observation, settings.nodes)
