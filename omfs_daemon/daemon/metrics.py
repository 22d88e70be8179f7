"""Metrics for Prometheus (docs/monitoring.md). Job ids and users are never labels, and each label has a bound."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.metric_groups.account_metrics import AccountMetrics
from omfs_daemon.daemon.metric_groups.daemon_metrics import DaemonMetrics, FileMetrics, SlurmCallMetrics
from omfs_daemon.daemon.metric_groups.idle_metrics import IdleMetrics, KeepIdle, KeepWaits
from omfs_daemon.daemon.metric_groups.node_metrics import NodeMetrics
from omfs_daemon.daemon.metric_groups.predict_metrics import PredictMetrics
from omfs_daemon.daemon.metric_groups.preemption_metrics import CostMetrics, PreemptionMetrics
from omfs_daemon.daemon.metric_groups.realtime_metrics import RealtimeMetrics
from omfs_daemon.daemon.metric_groups.urgent_metrics import UrgentMetrics
from omfs_daemon.daemon.metrics_page import MetricsPage
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.daemon.store.file_format import JOURNAL
from omfs_daemon.policy.entitled_waits import entitled_waits
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import State


class Metrics:
    """All series of one daemon, in a registry of their own. ``state_dir``: of the files that are measured;
    ``journal``: where that is elsewhere."""

    def __init__(
        self,
        version: str,
        slurm_version: str = "",
        state_dir: Path | None = None,
        journal: Path | None = None,
        keep_idle: KeepIdle = lambda begin, end, cpus: None,
        keep_waits: KeepWaits = lambda shares: None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.accounts = AccountMetrics(self.registry)
        self.urgent = UrgentMetrics(self.registry)
        self.realtime = RealtimeMetrics(self.registry)
        self.nodes = NodeMetrics(self.registry)
        self.idle = IdleMetrics(self.registry, keep_idle, keep_waits)
        self.daemon = DaemonMetrics(self.registry)
        self.slurm = SlurmCallMetrics(self.registry)
        self.predict = PredictMetrics(self.registry)
        self._preemptions = PreemptionMetrics(self.registry)
        self._costs = CostMetrics(self.registry)
        if state_dir is not None:
            FileMetrics(self.registry, state_dir, journal or state_dir / JOURNAL.name)
        self.slurm.observe_versions(version, slurm_version)

    # -- by the runner of effects ---------------------------------------------------------------------------------
    def count_preemption(self, policy: str, method: str, reason: str, outcome: str) -> None:
        """One job was preempted. ``reason`` is a reason *code*, never free text."""
        self._preemptions.count(policy, method, reason, outcome)

    def observe_reclaim(self, seconds: float) -> None:
        self._preemptions.observe_latency(seconds)

    def observe_cost(self, paid: PaidCost) -> None:
        """One preemption, or one return, of one job."""
        self._costs.observe(paid)

    # -- by the loop ------------------------------------------------------------------------------------------------
    def observe_report(self, report: CycleReport, poll: PollKind, calls: int, state: State, settings: Settings) -> None:
        """After each cycle. ``calls`` to Slurm in it; ``state`` and ``settings`` as they are after it."""
        self.slurm.count_calls(calls)
        if report.slurm_error:
            self.slurm.count_error(report.slurm_error)
        self.daemon.observe_cycle(report.took, report.error is not None)
        self.daemon.observe_mode(state.pause is not None, settings.dry_run, settings.promise)
        self._preemptions.observe_state(state, report.at)
        if poll is PollKind.FULL:
            self._observe_plan(report, state, settings)

    def _observe_plan(self, report: CycleReport, state: State, settings: Settings) -> None:
        snapshot, plan, rules = report.snapshot, report.plan, report.rules
        if snapshot is None or plan is None:
            return
        set_aside = sum(bool(job.set_aside) and not is_out_of_scope(job) for job in snapshot.jobs.values())
        self.daemon.observe_poll(snapshot.taken, max(0.0, report.seen - report.at), set_aside)
        under_way = [each.preemptor for each in state.preemptions.values()]
        served = {preemptor.ref: preemptor.account for preemptor in under_way}
        waits = entitled_waits(plan, snapshot, rules.tree, served)
        self.accounts.observe(plan.accounts, waits, snapshot.taken)
        self.urgent.observe(snapshot, plan, rules, state)
        self.realtime.observe(snapshot, plan, rules, state, max(0.0, report.decided - report.seen))
        self.idle.observe(snapshot, rules.tree, state.held)
        self.nodes.observe(snapshot.facts, settings.node_licenses.counts)

    # -- the page -----------------------------------------------------------------------------------------------------
    def text(self) -> str:
        """The page as Prometheus reads it."""
        return generate_latest(self.registry).decode()

    def serve(self, address: str, port: int) -> MetricsPage:
        """Serve the page over HTTP until it is closed; ConfigError if the address cannot be had."""
        return MetricsPage(self.registry, address, port)
