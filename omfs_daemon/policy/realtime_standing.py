"""How waiting real-time jobs stand: their estimated slowdown, and when jobs are preempted for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory, RealtimeRun
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.realtime_terms import JobSize, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES, threshold_crossing, waiting_slowdown


class RealtimeState(StrEnum):
    """Of a real-time job: before its threshold, due, beyond its bound, never due, or started."""

    WAITING = "waiting"
    DUE = "due"
    LATE = "late"
    NO_LIMIT = "no_limit"
    STARTED = "started"


class RealtimeStanding(NamedTuple):
    """A waiting real-time job.

    limit     the time limit that counts, in seconds; infinite: the job is never due
    slowdown  if it started now and used its time limit up
    act_at    the slowdown from which jobs are preempted for it; ``due_at``: when it reaches that
    bound     the slowdown that it was promised
    """

    ref: str
    account: str
    job_class: str
    category: str
    limit: float
    slowdown: float
    act_at: float
    bound: float
    due_at: float
    is_due: bool

    @property
    def state(self) -> RealtimeState:
        if self.limit == inf:
            return RealtimeState.NO_LIMIT
        if self.slowdown > self.bound:
            return RealtimeState.LATE
        return RealtimeState.DUE if self.is_due else RealtimeState.WAITING

    @property
    def start_by(self) -> float:
        """When its bound is reached: it is kept if the job has started by then. Infinite without a time limit."""
        return inf if self.limit == inf else self.due_at + (self.bound - self.act_at) * self.limit

    def text(self, now: float) -> str:
        """For people."""
        if self.limit == inf:
            return "it has no time limit, so it has no slowdown and is treated as an ordinary job"
        text = f"its slowdown is {self.slowdown:.2f}, its class acts at {self.act_at:.2f}"
        return text if self.is_due else f"{text}, in {max(0.0, self.due_at - now):.0f} s"


def limit_key(job: Job) -> str:
    """By which the time limit of a job is remembered: Slurm divides the records of arrays."""
    return str(job.array_id if job.array_id is not None else job.id)


def counted_limit(job: Job, known: Mapping[str, float]) -> float:
    """The time limit at first sight, or a later one that is longer: a shorter one would raise the slowdown."""
    return max(job.time_limit, known.get(limit_key(job), 0.0))


def waits_since(job: Job, runs: Mapping[str, RealtimeRun]) -> float:
    """Since when a real-time job has waited, as if without a break: from when Slurm could have started it, for what its
    owner puts off is no slowdown; earlier by what it waited before earlier runs. These do not count themselves, for who
    requeued it cannot be told, and its owner may."""
    since, last = max(job.submit, job.eligible or 0.0), runs.get(job.ref)
    if last is None:
        return since
    return since - (last.earlier if last.restarts == job.restarts else last.waited)


def standing(
    job: Job,
    terms: RealtimeTerms,
    job_class: str,
    size: JobSize,
    cpus: int,
    machine_cpus: int,
    history: PreemptionHistory,
    now: float,
) -> RealtimeStanding:
    """Of a waiting job of ``cpus`` CPUs."""
    limit = counted_limit(job, history.time_limits)
    since = waits_since(job, history.runs)
    category = size.category(cpus, limit, machine_cpus)
    act_at = terms.act_at[category]
    due_at = threshold_crossing(since, limit, act_at)
    return RealtimeStanding(
        ref=job.ref,
        account=job.account,
        job_class=job_class,
        category=CATEGORIES[category],
        limit=limit,
        slowdown=waiting_slowdown(since, limit, now),
        act_at=act_at,
        bound=terms.bound,
        due_at=due_at,
        is_due=now >= due_at,
    )


def is_first_on_idle(limit: float, rules: Rules) -> bool:
    """Whether a real-time job with this time limit goes before regular jobs even if it is not due: whoever started on
    these CPUs would be preempted for it soon. Not if it may never take them."""
    return limit < inf and rules.urgent_may_take_entitled


def in_order_of_slowdown(due: Iterable[tuple[RealtimeStanding, Job]]) -> list[tuple[RealtimeStanding, Job]]:
    """Those with the greatest slowdown first (section 6.2), then by age."""
    return sorted(due, key=lambda one: (-one[0].slowdown, one[1].submit, one[1].id))
