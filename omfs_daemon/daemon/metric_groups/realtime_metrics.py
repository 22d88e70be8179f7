"""Real-time jobs: how they stand, how late they started, and whether that was within their bound."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omfs_daemon.cluster.accounts import OTHERS
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.metric_groups.account_metrics import MOST_ACCOUNTS
from omfs_daemon.daemon.metric_groups.label_values import LabelValues
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.realtime_standing import RealtimeState
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.state import State

_SLOWDOWNS = (1, 1.01, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3, 5, 10, 100)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RealtimeMetrics:
    """By full polls. An account is a label if it has an entitlement; all others are one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge(
            "omfs_realtime_jobs",
            "Real-time jobs: before their threshold, due, beyond their bound, without a time limit, or started",
            ["state"],
            registry=registry,
        )
        self._slowdown = Histogram(
            "omfs_realtime_slowdown",
            "Slowdown with which a real-time job started: (time limit + time waited) / time limit",
            buckets=_SLOWDOWNS,
            registry=registry,
        )
        self._missed = Counter(
            "omfs_realtime_bound_missed",
            "Real-time jobs that started with a greater slowdown than they were promised",
            ["account"],
            registry=registry,
        )
        self._plan = Histogram(
            "omfs_realtime_plan_seconds",
            "Time to plan and to validate in cycles in which real-time jobs wait",
            buckets=_SECONDS,
            registry=registry,
        )
        self._accounts = LabelValues(MOST_ACCOUNTS)
        self._started: list[JobEvent] = []
        for state in RealtimeState:
            self._jobs.labels(state.value)

    def note_start(self, event: JobEvent) -> None:
        """Counted with the next full poll, which knows the accounts."""
        self._started.append(event)

    def observe(self, snapshot: Snapshot, plan: Plan, rules: Rules, state: State, seconds: float) -> None:
        """``seconds``: that the plan and its validation took."""
        known = {entitlement.name for entitlement in rules.tree.entitlements}
        if any(rule.realtime is not None for rule in rules.classes):
            for account in (*sorted(known), OTHERS):
                self._missed.labels(self._accounts.bounded(account))  # else the first one would be no increase
        for event in self._started:
            self._slowdown.observe(float(str(event.data["slowdown"])))
            if not event.data["kept"]:
                self._missed.labels(self._accounts.bounded(event.account if event.account in known else OTHERS)).inc()
        self._started.clear()
        counts = Counts(one.state.value for one in plan.realtime)
        counts[RealtimeState.DUE] += sum(each.is_for_realtime for each in state.preemptions.values())
        runs = state.backoff.realtime.runs
        counts[RealtimeState.STARTED] = (
            sum(job.ref in runs for job in snapshot.jobs.values() if job.runs) if runs else 0
        )
        for one in RealtimeState:
            self._jobs.labels(one.value).set(counts[one.value])
        if plan.realtime:
            self._plan.observe(seconds)
