"""What is remembered of real-time jobs: their time limits, for one that its owner shortens would raise the slowdown of
the job; and what they waited before earlier runs, for Slurm shows a requeued job as submitted when it was requeued."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import RealtimeRun
from omfs_daemon.policy.realtime_standing import counted_limit, limit_key
from omfs_daemon.policy.rules.classes import JobClassRule, Rules, classify
from omfs_daemon.preemption.records import JobEvent

STARTED = "realtime_started"
"""The event of a real-time job that has started; its data: slowdown, bound, kept."""


@dataclass(frozen=True, slots=True)
class RealtimeMemory:
    """``limits``: in seconds, by ``limit_key``; ``runs``: the last run of each job, by ``Job.ref``."""

    limits: dict[str, float] = field(default_factory=dict)
    runs: dict[str, RealtimeRun] = field(default_factory=dict)

    def copy(self) -> RealtimeMemory:
        return RealtimeMemory(dict(self.limits), dict(self.runs))

    def note(self, seen: RealtimeSeen) -> None:
        """Changes this one."""
        for key in seen.gone:
            self.limits.pop(key, None)
        for ref in seen.ended:
            self.runs.pop(ref, None)
        self.limits.update(seen.limits)
        self.runs.update(seen.runs)


@dataclass(frozen=True, slots=True)
class RealtimeSeen:
    """What is new: time limits of jobs that wait, if longer than before, and runs that have begun. ``gone`` and
    ``ended``: limits and runs of jobs that Slurm does not list any more."""

    limits: dict[str, float] = field(default_factory=dict)
    runs: dict[str, RealtimeRun] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class RealtimeNews(NamedTuple):
    """``seen``: None if there is nothing to remember."""

    seen: RealtimeSeen | None = None
    events: tuple[JobEvent, ...] = ()


def realtime_news(known: RealtimeMemory, jobs: Mapping[int, Job], rules: Rules, now: float) -> RealtimeNews:
    """What is new about the jobs of real-time classes."""
    classes = [rule for rule in rules.classes if rule.realtime is not None]
    if not classes and not known.limits and not known.runs:
        return RealtimeNews()
    limits: dict[str, float] = {}
    runs: dict[str, RealtimeRun] = {}
    events: list[JobEvent] = []
    for job in jobs.values():
        if not isfinite(job.time_limit) or not _may_be_in(classes, job):
            continue
        if job.state is JobState.PENDING:
            limit = counted_limit(job, known.limits)
            if limit != known.limits.get(limit_key(job)):
                limits[limit_key(job)] = limit
            continue
        before = known.runs.get(job.ref)
        if job.start is not None and (before is None or before.restarts != job.restarts):
            runs[job.ref] = run = _run(job, before)
            events += _started(job, run, known, rules, now)
    gone = known.limits.keys() - {limit_key(job) for job in jobs.values()} if known.limits else ()
    ended = known.runs.keys() - {job.ref for job in jobs.values()} if known.runs else ()
    seen = RealtimeSeen(limits, runs, tuple(sorted(gone)), tuple(sorted(ended)))
    return RealtimeNews(seen if limits or runs or gone or ended else None, tuple(events))


def _run(job: Job, before: RealtimeRun | None) -> RealtimeRun:
    earlier = 0.0 if before is None else before.waited
    since = max(job.submit, job.eligible or 0.0)
    return RealtimeRun(job.restarts, earlier, earlier + max(0.0, (job.start or since) - since))


def _started(job: Job, run: RealtimeRun, known: RealtimeMemory, rules: Rules, now: float) -> Iterable[JobEvent]:
    """Whether the promise was kept. One that was late before omfsd had ever seen it wait was promised nothing."""
    job_class = classify(rules, job)
    terms, limit = job_class.realtime, counted_limit(job, known.limits)
    if terms is None:
        return
    slowdown = (limit + run.waited) / limit
    kept = slowdown <= terms.bound
    if not kept and limit_key(job) not in known.limits:
        return
    text = f"real-time: it has started with a slowdown of {slowdown:.2f}; its class promises at most {terms.bound:g}"
    data = {"slowdown": round(slowdown, 4), "bound": terms.bound, "kept": kept}
    yield JobEvent(now, job.ref, job.user, job.account, "realtime_started", text, data)


def _may_be_in(classes: Collection[JobClassRule], job: Job) -> bool:
    partitions = (job.partition,) if job.state is not JobState.PENDING else job.request.partitions or ("",)
    return any(rule.matches(partition, job.qos, job.account) for rule in classes for partition in partitions)
