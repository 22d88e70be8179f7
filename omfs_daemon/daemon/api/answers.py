"""The daemon's answers on the control socket."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon import __version__
from omfs_daemon.config.load import check_entitlements
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.cycle_report import LatestPoll, cycle_summary
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView, entitlements_view
from omfs_daemon.daemon.api.history_view import CostsView, HistoryView, costs_view, past_preemptions
from omfs_daemon.daemon.api.methods_view import MethodsView, methods_now
from omfs_daemon.daemon.api.operations import DoneView
from omfs_daemon.daemon.api.plan_view import PlanView, only_of, plan_view
from omfs_daemon.daemon.api.shadow_view import ShadowView, shadow_view
from omfs_daemon.daemon.api.status_view import (
    SET_ASIDE_SHOWN,
    StatusView,
    account_views,
    cluster_view,
    held_count,
    out_of_scope_count,
    pause_view,
    preempted_jobs,
    preemptions_under_way,
    set_aside_jobs,
)
from omfs_daemon.daemon.api.why_view import WhyView, why_view
from omfs_daemon.daemon.node_client.probes import Probed
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore, entitlements_in
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import Conditions, validate
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import Pause, PauseEnded
from omfs_daemon.slurm.gateway import Gateway


class DaemonControls(NamedTuple):
    """What a request may set off. ``change_entitlements`` and ``reload`` return what is in force now; ``wake`` ends
    the loop's rest; ``lock`` is held while the journal's state changes."""

    change_entitlements: Callable[[dict[str, object], Caller], list[str]]
    reload: Callable[[], str]
    wake: Callable[[], None]
    lock: Lock


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
        settings: Callable[[], Settings],
        probed: Callable[[], Probed],
        controls: DaemonControls,
        clock: Callable[[], float],
    ) -> None:
        self._gateway = gateway
        self._latest = latest
        self._journal = journal
        self._history_database = history_database
        self._entitlements = entitlements
        self._settings = settings
        self._probed = probed
        self._controls = controls
        self._clock = clock
        self._foreseen: tuple[tuple[float, int], Plan | None] = ((0.0, 0), None)
        self._log = structlog.get_logger("control")

    def status(self, caller: Caller) -> StatusView:
        report, state = self._latest.report, self._journal.state
        set_aside = set_aside_jobs(report, None if caller.is_operator else caller.user)
        return StatusView(
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
            held=held_count(report),
            set_aside=len(set_aside),
            set_aside_jobs=set_aside[:SET_ASIDE_SHOWN],
            scope=self._settings().rules.scope.text,
            not_in_scope=out_of_scope_count(report),
            entitlements_source=self._entitlements.source,
        )

    def plan(self, caller: Caller) -> PlanView:
        suggested = self._foresee()
        report, state, settings = self._latest.report, self._journal.state, self._settings()
        if suggested is None or report.snapshot is None:
            return PlanView(time=report.at, summary=report.summary, actions=[], refused=[])
        conditions = Conditions(float("inf"), paused=state.pause is not None)
        history = state.preemption_history(settings.rules.methods)
        verdict = validate(suggested, report.snapshot, history, settings.rules, suggested.now, conditions)
        text = cycle_summary(suggested, verdict, state, dry_run=True)
        view = plan_view(report.at, text, suggested, verdict)
        return view if caller.is_operator else only_of(caller, view, report.snapshot)

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
        return why_view(caller, job, report, state, rules, self._history_database, self._foresee())

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        user = None if caller.is_operator else caller.user
        preemptions = self._history_database.preemptions(limit, since, user)
        oldest = min((preemption.time for preemption in preemptions), default=self._clock())
        return HistoryView(preemptions=past_preemptions(preemptions, self._history_database.costs(oldest, user)))

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        return costs_view(self._history_database.costs(since, None if caller.is_operator else caller.user), limit)

    def shadow(self, caller: Caller, since: float) -> ShadowView:
        return shadow_view(self._history_database.shadow(since), since, self._clock())

    def methods(self, caller: Caller) -> MethodsView:
        return methods_now(self._settings(), self._latest.report.snapshot, self._probed())

    def entitlements(self, caller: Caller) -> EntitlementsView:
        return entitlements_view(self._entitlements)

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        check_entitlements(entitlements_in(change), self._gateway.accounts())
        changed = self._controls.change_entitlements(change, caller)
        self._log.info("entitlements_changed", by=caller.user, changed=changed)
        self._controls.wake()
        return {**entitlements_view(self._entitlements), "changed": changed}

    def pause(self, caller: Caller, reason: str) -> DoneView:
        with self._controls.lock:
            self._journal.write(Pause(caller.user, self._clock(), reason))
        self._log.warning("paused", by=caller.user, reason=reason)
        return DoneView(done="paused: no job is preempted or held; preemptions under way are completed")

    def resume(self, caller: Caller) -> DoneView:
        with self._controls.lock:
            self._journal.write(PauseEnded(caller.user, self._clock()))
        self._log.warning("pause_ended", by=caller.user)
        self._controls.wake()
        return DoneView(done="the daemon acts again")

    def reload(self, caller: Caller) -> DoneView:
        self._log.info("reload_requested", by=caller.user)
        return DoneView(done=self._controls.reload())
