"""Preemptions: how they ended, how long they took, and what they cost."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omfs_daemon.cluster.preempt_methods import OUT
from omfs_daemon.daemon.metric_groups.label_values import LabelValues
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.preemption.past_preemptions import set_apart
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.preemption.state import State

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# Most methods lose, or move, nothing: a bucket of its own, so that quantiles say so.
_LOST_SECONDS = (0, 1, 10, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 3 * 86400)
_BYTES = (0, *(1 << power for power in range(20, 45, 2)))  # 1 MiB to 16 TiB


class PreemptionMetrics:
    """``method`` and ``reason`` are codes of which there are few, and bounded all the same."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._methods, self._reasons, self._outcomes = LabelValues(), LabelValues(), LabelValues()
        self._ended = Counter(
            "omfs_preemptions",
            "Jobs that were to be preempted, by how the preemption ended",
            ["policy", "method", "reason", "outcome"],
            registry=registry,
        )
        self._reclaim = Histogram(
            "omfs_reclaim_latency_seconds",
            "Time from the decision to preempt until the preemptor runs",
            buckets=_SECONDS,
            registry=registry,
        )
        self._under_way = Gauge("omfs_preemptions_under_way", "Preemptions under way", registry=registry)
        self._preempted = Gauge(
            "omfs_jobs_preempted", "Jobs that were preempted and do not run again yet", registry=registry
        )
        self._held = Gauge("omfs_jobs_held", "Jobs that the daemon holds", registry=registry)
        self._set_apart = Gauge(
            "omfs_jobs_set_apart", "Jobs that preempted each other by turns and are left to run", registry=registry
        )
        self._most = Gauge(
            "omfs_job_preemptions_max",
            "Preemptions within the last 3600 seconds of the job that was preempted most often",
            registry=registry,
        )

    def count(self, policy: str, method: str, reason: str, outcome: str) -> None:
        values = self._methods.bounded(method), self._reasons.bounded(reason), self._outcomes.bounded(outcome)
        self._ended.labels(policy, *values).inc()

    def observe_latency(self, seconds: float) -> None:
        self._reclaim.observe(seconds)

    def observe_state(self, state: State, now: float) -> None:
        """What the journal adds up to."""
        past = state.past_preemptions
        counts = (sum(at > now - HOUR for at, _ in one.recent) for one in past.values())
        self._most.set(max(counts, default=0))
        self._set_apart.set(sum(until > now for until in set_apart(past).values()))
        self._under_way.set(len(state.preemptions))
        self._preempted.set(len(state.preempted))
        self._held.set(len(state.held))


class CostMetrics:
    """What preemptions and returns cost, by method."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"omfs_{name}", text, ["method"], buckets=buckets, registry=registry)

        self._methods = LabelValues()
        self._preempt = histogram("preempt_seconds", "Time from the order until a victim has freed its resources")
        self._resume = histogram("resume_seconds", "Time that a preempted job takes to compute again")
        self._delay = histogram(
            "preemption_delay_seconds",
            "Time that the slowest process of a job took to be moved out (UJFB, Equation 3)",
        )
        self._size = histogram("preemption_size_bytes", "Memory that a preemption moved out", _BYTES)
        self._waste = histogram("preemption_lost_seconds", "Work that a preemption threw away", _LOST_SECONDS)
        text, labels = "Memory of jobs that was moved out or in", ["method", "direction"]
        self._moved = Counter("omfs_moved_bytes", text, labels, registry=registry)
        self._lost = Counter("omfs_work_lost_seconds", "Work thrown away", ["method"], registry=registry)

    def observe(self, paid: PaidCost) -> None:
        method = self._methods.bounded(paid.method)
        if paid.direction == OUT:
            self._preempt.labels(method).observe(paid.seconds)
            self._size.labels(method).observe(paid.size)
            self._waste.labels(method).observe(paid.lost)
        else:
            self._resume.labels(method).observe(paid.seconds)
        if paid.size:
            self._moved.labels(method, paid.direction).inc(paid.size)
        if paid.lost:
            self._lost.labels(method).inc(paid.lost)
        if paid.slowest:
            self._delay.labels(method).observe(paid.slowest)
