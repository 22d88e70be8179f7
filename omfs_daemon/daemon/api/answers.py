"""The daemon's answers on the control socket."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

import structlog

from omfs_daemon import __version__
from omfs_daemon.cluster.accounts import cut_text
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.config.load import check_entitlements
from omfs_daemon.daemon.api.bound_chance_view import BoundChanceView, bound_chance_view
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.controls import DaemonControls
from omfs_daemon.daemon.api.cycle_report import LatestPoll, cycle_summary
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView, entitlements_view
from omfs_daemon.daemon.api.exempt_view import ExemptView
from omfs_daemon.daemon.api.history_view import CostsView, HistoryView, costs_view, own_parts, past_preemptions
from omfs_daemon.daemon.api.idle_hours_view import IdleHoursView, idle_hours_view
from omfs_daemon.daemon.api.methods_view import MethodsView, methods_now
from omfs_daemon.daemon.api.operations import DoneView
from omfs_daemon.daemon.api.operator_acts import OperatorActs
from omfs_daemon.daemon.api.plan_difference_view import PlanDifferenceView, plan_difference_view
from omfs_daemon.daemon.api.plan_view import PlanView, only_of, plan_view
from omfs_daemon.daemon.api.predict_view import (
    LearningView,
    PredictView,
    ScoresView,
    available,
    learning_view,
    predict_jobs,
    predict_named,
    scores_view,
)
from omfs_daemon.daemon.api.realtime_view import realtime_standings
from omfs_daemon.daemon.api.shadow_view import ShadowView, shadow_view
from omfs_daemon.daemon.api.shared_core import SharedCore
from omfs_daemon.daemon.api.status_view import (
    JOBS_SHOWN,
    StatusView,
    account_views,
    bounds_view,
    cluster_view,
    held_jobs,
    out_of_scope_count,
    pause_view,
    preempted_jobs,
    preemptions_under_way,
    set_aside_jobs,
)
from omfs_daemon.daemon.api.wait_hours_view import WaitHoursView, wait_hours_view
from omfs_daemon.daemon.api.when_view import WhenView, first_starts, start_line, when_view, why_none
from omfs_daemon.daemon.api.where_view import StartsElsewhere, WhereView
from omfs_daemon.daemon.api.why_view import (
    WhyView,
    asked_job,
    listed_job,
    listed_jobs,
    why_it_waits,
    why_view,
    without_others_in,
)
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.daemon.node_client.probes import Probed
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore, conflict_text, entitlements_in
from omfs_daemon.daemon.store.exemption_store import ExemptionStore
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import ConfigError, ControlError, GatewayError, UnansweredError
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.validator import Conditions, validate
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import Pause, PauseEnded
from omfs_daemon.slurm.batch_words import OptionWord
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.site_check import parent_differences

_STARTS_SHOWN = 50
_MOST_LOOKED_UP = 10
"""Jobs that are not listed and that Slurm is asked for, in one request."""
_REF = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")


class Answers:
    """Implements :class:`~omfs_daemon.daemon.api.operations.Control`; called from the socket's threads."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        latest: LatestPoll,
        journal: Journal,
        history_database: HistoryDatabase,
        entitlements: EntitlementStore,
        exemptions: ExemptionStore,
        audit: AuditLog,
        settings: Callable[[], Settings],
        probed: Callable[[], Probed],
        predictions: PredictionService | str,
        starts_elsewhere: StartsElsewhere,
        core: SharedCore,
        controls: DaemonControls,
        clock: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._latest = latest
        self._journal = journal
        self._history_database = history_database
        self._entitlements = entitlements
        self._operator_acts = OperatorActs(
            gateway, latest, history_database, entitlements, exemptions, audit, controls, clock
        )
        self._settings = settings
        self._probed = probed
        self.predictions = predictions
        self._starts_elsewhere = starts_elsewhere
        self._core = core
        self._controls = controls
        self._clock = clock
        self._foreseen: tuple[tuple[float, int], Plan | None] = ((0.0, 0), None)
        self._log = structlog.get_logger("control")

    def status(self, caller: Caller) -> StatusView:
        report, state = self._latest.report, self._journal.state
        whose = None if caller.is_operator else caller.user
        held, set_aside = held_jobs(report, whose), set_aside_jobs(report, whose)
        view = StatusView(
            version=__version__,
            time=self._clock(),
            gateway=self._gateway.name,
            slurm_version=self._latest.slurm_version,
            paused=pause_view(state),
            dry_run=self._settings().dry_run,
            last_poll=self._latest.last_poll,
            last_error=report.error if caller.is_operator else None,
            summary=report.summary if caller.is_operator else "",
            cluster=cluster_view(report),
            accounts=account_views(report.plan.accounts, report.rules.tree) if report.plan else [],
            preemptions_under_way=preemptions_under_way(state) if caller.is_operator else [],
            preempted=preempted_jobs(state) if caller.is_operator else [],
            held=sum(job["tasks"] for job in held),
            held_jobs=held[:JOBS_SHOWN],
            set_aside=len(set_aside),
            set_aside_jobs=set_aside[:JOBS_SHOWN],
            scope=self._settings().rules.scope.text,
            not_in_scope=out_of_scope_count(report),
            bounds=bounds_view(self._settings().rules, self._history_database, self._clock()),
            entitlements_source=self._entitlements.source,
        )
        if caller.is_operator and (conflict := self._entitlements.conflict()):
            view["entitlements_conflict"] = conflict_text(conflict)
        if caller.is_operator and (refused := self._controls.refused()):
            view["reload_refused"] = refused
        return view

    def plan(self, caller: Caller) -> PlanView:
        suggested, settings, report = self._foresee(), self._settings(), self._latest.report
        if suggested is None or report.snapshot is None:
            return PlanView(time=report.at, summary=report.summary, actions=[], refused=[])
        view = self._view_of(suggested, report.at, report.snapshot, settings.rules)
        if isinstance(self.predictions, PredictionService):
            mine = {job.ref for job in report.snapshot.jobs.values() if caller.is_operator or job.user == caller.user}
            arrays = {ref.partition("_")[0] for ref in mine if "_" in ref}
            own = lambda ref: ref in mine or ref.partition("_")[0] in arrays  # noqa: E731
            view["start_estimate"] = first_starts(self.predictions.estimates(), own, _STARTS_SHOWN)
        return view if caller.is_operator else only_of(caller, view, report.snapshot, self._latest.hides_jobs)

    def _view_of(self, suggested: Plan, at: float, snapshot: Snapshot, rules: Rules) -> PlanView:
        """What the validator leaves of a plan for the latest observation, which was made at this time."""
        state = self._journal.state
        conditions = Conditions(float("inf"), paused=state.pause is not None)
        history = state.preemption_history(rules.methods)
        verdict = validate(suggested, snapshot, history, rules, suggested.now, conditions)
        text = cycle_summary(suggested, verdict, state, self._settings().dry_run, on_paper=True)
        return plan_view(at, text, suggested, verdict)

    def plan_with(self, caller: Caller, text: str, source: str) -> PlanDifferenceView:
        tried = self._controls.tried(text, source)
        suggested, report, rules = self._foresee(), self._latest.report, self._settings().rules
        if suggested is None or report.snapshot is None:
            raise UnansweredError("Slurm has not answered yet: try again")
        history = self._journal.state.preemption_history(tried.rules.methods)
        with self._core.request(caller.uid) as turn, turn():
            other = make_plan(report.snapshot, history, tried.rules, suggested.now)
        now = self._view_of(suggested, report.at, report.snapshot, rules)
        new = self._view_of(other, report.at, report.snapshot, tried.rules)
        return plan_difference_view(now, new, (rules, tried.rules), tried)

    def _foresee(self) -> Plan | None:
        """The plan for the latest observation; nothing is carried out. Made once per cycle, however many ask."""
        report, settings = self._latest.report, self._settings()
        if report.snapshot is None:
            return None
        made_for, foreseen = self._foreseen
        if made_for != (report.at, id(settings)) or foreseen is None:
            history = self._journal.state.preemption_history(settings.rules.methods)
            foreseen = make_plan(report.snapshot, history, settings.rules, self._clock())
            self._foreseen = ((report.at, id(settings)), foreseen)
        return foreseen

    def why(self, caller: Caller, job: str) -> WhyView:
        report, state, rules = self._latest.report, self._journal.state, self._settings().rules
        job = asked_job(job)
        view = why_view(caller, job, report, state, rules, self._history_database, self._foresee())
        found = listed_job(report, job)
        if isinstance(self.predictions, PredictionService) and found and not why_none(caller, found, job):
            view["start"] = start_line(self.predictions.estimates(needed=[found.ref]), job, found.ref)
        return without_others_in(view) if self._latest.hides_jobs and not caller.is_operator else view

    def when(self, caller: Caller, jobs: list[str], at_limit: bool) -> WhenView:
        service, report = available(self.predictions), self._latest.report
        if report.snapshot is None:
            raise UnansweredError("Slurm has not answered yet: try again")
        listed, lookups = listed_jobs(report), iter(range(_MOST_LOOKED_UP))

        def find(ref: str) -> Job | None:
            """Each that Slurm lists no longer costs it a request, until one is not answered: others wait meanwhile."""
            found = listed(ref)
            if found is None and _REF.fullmatch(ref) and next(lookups, None) is not None:
                try:
                    return self._gateway.find(ref)
                except GatewayError:
                    deque(lookups, maxlen=0)
            return found

        jobs = list(dict.fromkeys(map(asked_job, jobs)))
        reason = lambda job: why_it_waits(job, job.ref, self._foresee(), report.at)  # noqa: E731
        snapshot, rules = report.snapshot, self._settings().rules
        history = self._journal.state.preemption_history(rules.methods)
        standings = lambda asked: realtime_standings(asked, snapshot, history, rules, report.at)  # noqa: E731
        return when_view(caller, jobs, service, snapshot, find, reason, standings, at_limit)

    def where(self, caller: Caller, words: list[tuple[str, str]]) -> WhereView:
        service = available(self.predictions)
        return self._starts_elsewhere.where(caller, service, [OptionWord(*word) for word in words])

    def bound_chance(self, caller: Caller, job_class: str, cpus: int, limit: float) -> BoundChanceView:
        service, snapshot, rules = available(self.predictions), self._latest.report.snapshot, self._settings().rules
        if snapshot is None:
            raise UnansweredError("Slurm has not answered yet: try again")
        history = self._journal.state.preemption_history(rules.methods)
        with self._core.request(caller.uid) as turn, turn():
            return bound_chance_view(caller, job_class, cpus, limit, service, snapshot, history, rules)

    def predict(self, caller: Caller, job: str, user: str, name: str) -> PredictView:
        service = available(self.predictions)
        if not job:
            return predict_named(caller, service, user, name)
        found = listed_job(self._latest.report, asked_job(job))
        if found is None or not (caller.is_operator or found.user == caller.user):
            raise ControlError(f"job {job}: " + ("Slurm does not list it" if found is None else "is not yours"))
        return predict_jobs(service, [found])

    def score(self, caller: Caller, since: float, by: str) -> ScoresView:
        return scores_view(caller, available(self.predictions), since, by)

    def learn(self, caller: Caller, since: float) -> LearningView:
        service = available(self.predictions)
        service.learn(since)
        self._log.info("learning_requested", by=caller.user, since=since)
        return learning_view(service)

    def forget_user(self, caller: Caller, user: str) -> DoneView:
        if not user:
            raise ConfigError("user: must be the name of a user")
        count = available(self.predictions).forget(user, caller)
        return DoneView(done=f"what was learned from {count:,} jobs of {user} is deleted; new jobs are learned again")

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        user = None if caller.is_operator else caller.user
        preemptions = self._history_database.preemptions(limit, since, user)
        oldest = min((preemption.time for preemption in preemptions), default=self._clock())
        if user is not None and self._latest.hides_jobs:
            preemptions = own_parts(user, preemptions)
        return HistoryView(preemptions=past_preemptions(preemptions, self._history_database.costs(oldest, user)))

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        return costs_view(self._history_database.costs(since, None if caller.is_operator else caller.user, limit))

    def shadow(self, caller: Caller, since: float) -> ShadowView:
        return shadow_view(self._history_database.shadow(since), since, self._clock())

    def idle_hours(self, caller: Caller, since: float) -> IdleHoursView:
        return idle_hours_view(self._history_database.idle_hours(since))

    def wait_hours(self, caller: Caller, since: float) -> WaitHoursView:
        return wait_hours_view(self._history_database.waits(since))

    def methods(self, caller: Caller) -> MethodsView:
        return methods_now(self._settings(), self._latest.report.snapshot, self._probed())

    def entitlements(self, caller: Caller) -> EntitlementsView:
        return entitlements_view(self._entitlements, self._latest.report)

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        rows = self._gateway.accounts()
        check_entitlements(entitlements_in(change), rows)
        changed = self._controls.change_entitlements(change, caller)
        self._log.info("entitlements_changed", by=caller.user, changed=changed)
        self._controls.wake()
        own, plan = self._entitlements.entitlements, self._latest.report.plan
        differing = parent_differences(own, rows or ())
        cut = cut_text(own, plan.cpus) if plan is not None else ""
        texts = [*changed, *differing, *([cut] if cut else [])]
        return {**entitlements_view(self._entitlements, self._latest.report), "changed": texts}

    def pause(self, caller: Caller, reason: str) -> DoneView:
        """A pause that is in force stays as it is, unless another reason is given."""
        paused = self._journal.state.pause
        if paused is not None and not reason:
            why = f": {paused.reason}" if paused.reason else ""
            return DoneView(done=f"is paused already, by {paused.by}{why}")
        self._operator_acts.audit.record_or_refuse("pause", caller, reason=reason)
        with self._controls.lock:
            self._journal.write(Pause(caller.user, self._clock(), reason))
        self._log.warning("paused", by=caller.user, reason=reason)
        return DoneView(done="paused: no job is preempted or held; preemptions under way are completed")

    def resume(self, caller: Caller) -> DoneView:
        if self._journal.state.pause is None:
            return DoneView(done="was not paused: nothing changes")
        self._operator_acts.audit.record_or_refuse("resume", caller)
        with self._controls.lock:
            self._journal.write(PauseEnded(caller.user, self._clock()))
        self._log.warning("pause_ended", by=caller.user)
        self._controls.wake()
        return DoneView(done="the daemon acts again")

    def release(self, caller: Caller, job: str) -> DoneView:
        return self._operator_acts.release(caller, job)

    def exempt(self, caller: Caller, name: str, until: float | None) -> DoneView:
        return self._operator_acts.exempt(caller, name, until)

    def end_exemption(self, caller: Caller, name: str) -> DoneView:
        return self._operator_acts.end_exemption(caller, name)

    def exemptions(self, caller: Caller) -> ExemptView:
        return self._operator_acts.exemptions()

    def reload(self, caller: Caller) -> DoneView:
        self._log.info("reload_requested", by=caller.user)
        return DoneView(done=self._controls.reload())
