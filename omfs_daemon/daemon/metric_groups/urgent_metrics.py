"""Urgent jobs: how many wait, how soon they start, and their slowdown."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Histogram

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.policy.plan import Plan, Reason
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.preemption.state import State

_START_SECONDS = (0, 1, 2, 3, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Slurm's times are whole seconds."""

_SLOWDOWNS = (1, 1.01, 1.05, 1.1, 1.25, 1.5, 2, 5, 10, 100, 1000)

_SHORTEST = 1.0
"""A shorter run counts as so many seconds in the slowdown (Agung et al. 2021)."""


class UrgentMetrics:
    """By full polls: a job that starts and ends between two of them is not seen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._waiting = Gauge(
            "omfs_urgent_jobs_waiting", "Urgent jobs that wait although Slurm would start them", registry=registry
        )
        self._start = Histogram(
            "omfs_urgent_start_latency_seconds",
            "Time from the submission of an urgent job until Slurm started it",
            buckets=_START_SECONDS,
            registry=registry,
        )
        self._slowdown = Histogram(
            "omfs_urgent_slowdown_ratio",
            "Time from the submission of an urgent job to its end, divided by its run time",
            buckets=_SLOWDOWNS,
            registry=registry,
        )
        self._worst = Gauge(
            "omfs_urgent_slowdown_max_ratio",
            "Greatest slowdown of an urgent job since the daemon started: U_L (Agung et al. 2021, Equation 4)",
            registry=registry,
        )
        self._running: frozenset[int] | None = None
        self._urgent: dict[int, Job] = {}
        self._u_l = 0.0

    def observe(self, snapshot: Snapshot, plan: Plan, rules: Rules, state: State) -> None:
        refused = {wait.ref for wait in plan.waits.single if wait.reason is Reason.WOULD_NOT_START}
        preemptors = {each.preemptor.ref for each in state.preemptions.values() if each.preemptor.urgent}
        self._waiting.set(len({*plan.urgent, *preemptors} - refused))
        running = frozenset(job.id for job in snapshot.jobs.values() if job.runs)
        if self._running is not None:  # what ran before the daemon has been counted, or was never seen
            for number in running - self._running:
                self._note_start(snapshot.jobs[number], rules)
        self._running = running
        for number in self._urgent.keys() - running:
            self._note_end(self._urgent.pop(number), snapshot.taken)

    def _note_start(self, job: Job, rules: Rules) -> None:
        if job.start is None or not classify(rules, job).urgent:
            return
        self._urgent[job.id] = job
        self._start.observe(max(0.0, job.start - max(job.submit, job.eligible or job.submit)))

    def _note_end(self, job: Job, now: float) -> None:
        start = now if job.start is None else job.start
        slowdown = max(1.0, (now - job.submit) / max(_SHORTEST, now - start))
        self._slowdown.observe(slowdown)
        self._u_l = max(self._u_l, slowdown)
        self._worst.set(self._u_l)
