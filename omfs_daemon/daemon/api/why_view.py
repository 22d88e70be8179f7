"""The shape behind --json beside what makes it."""

from __future__ import annotations

from typing import TypedDict
from collections.abc import Mapping
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.cycle_report import Report
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.state import State
from omfs_daemon.daemon.store.history_database import Story
from omfs_daemon.errors import ControlError
from omfs_daemon.policy.plan import TEXT
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reason
from omfs_daemon.cluster.holds import could_start
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.cluster.holds import is_held_for_owner
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.victims.method_availability import WHY_NOT_TEXT
from omfs_daemon.policy.victims.method_availability import Ways


# -- why and history ---------------------------------------------------------------------------------


class EventView(TypedDict):
    time: float
    event: str
    text: str
    data: dict[str, object]


class WayView(TypedDict):
    """A method by which the job may be stopped; ``why_not`` is "" where it could be now. Seconds are estimates."""

    method: str
    stop_seconds: float
    back_seconds: float
    lost_seconds: float
    why_not: str


WhyView = TypedDict(
    "WhyView",
    {
        "job": str,
        "user": str,
        "account": str,
        "class": str,
        "state": str,
        "now": str,
        "ways": list[WayView],
        "events": list[EventView],
    },
)


def why_view(
    caller: Caller, ref: str, report: Report, state: State, rules: Rules, story: Story, suggested: Plan | None
) -> WhyView:
    """A job's story; ControlError if nothing is known of it, or if it is somebody else's."""
    job = _find(report, state, ref)
    events = story.of_job(job.ref if job is not None else ref)
    users = {job.user} if job is not None else {event.user for event in events if event.user}
    if job is None and not events:
        raise ControlError(f"job {ref}: Slurm does not list it, and nothing was ever done about it")
    if not caller.is_operator and caller.user not in users:
        raise ControlError(f"job {ref}: is not yours")
    return {
        "job": ref,
        "user": job.user if job is not None else next(iter(sorted(users)), ""),
        "account": job.account if job is not None else events[-1].account,
        "class": _class_text(rules, job) if job is not None else "",
        "state": job.state.value if job is not None else "ENDED",
        "now": _now(job, ref, state, suggested, report.at) if job is not None else "Slurm lists it no longer",
        "ways": _ways(rules, job, report.snapshot) if job is not None and job.runs else [],
        "events": [
            {"time": event.time, "event": event.event, "text": event.text, "data": dict(event.data)} for event in events
        ],
    }


def _find(report: Report, state: State, ref: str) -> Job | None:
    if report.snapshot is None:
        raise ControlError("Slurm has not answered yet: try again")
    picture = Picture(report.snapshot)
    found = picture.job(ref)
    if found is None and ref.isdecimal():
        found = report.snapshot.jobs.get(int(ref))
    return found


def _ways(rules: Rules, job: Job, snapshot: Snapshot | None) -> list[WayView]:
    """Cheapest first of those that could be used now, then the others."""
    if snapshot is None:
        return []
    found = Ways(rules, snapshot.facts, snapshot.sizes).all(job, classify(rules, job))
    return [
        WayView(
            method=way.method,
            stop_seconds=round(way.cost.stop, 1),
            back_seconds=round(way.cost.back, 1),
            lost_seconds=round(way.cost.lost, 1),
            why_not="" if way.why_not is None else WHY_NOT_TEXT[way.why_not],
        )
        for way in sorted(found, key=lambda way: (way.why_not is not None, way.cost.total))
    ]


def _class_text(rules: Rules, job: Job) -> str:
    job_class = classify(rules, job)
    if job_class.urgent:
        return f"{job_class.name}: urgent"
    methods = f" ({', '.join(job_class.methods)})" if job_class.methods else ""
    return f"{job_class.name}: {job_class.preemptibility.value}{methods}"


def _now(job: Job, ref: str, state: State, suggested: Plan | None, now: float) -> str:
    stop = next((stop for stop in state.stops.values() if ref in stop.refs), None)
    if stop is not None and stop.beneficiary.ref == ref:
        return f"room is being made for it (step: {stop.step.value})"
    if stop is not None:
        return f"is being stopped for job {stop.beneficiary.ref} (step: {stop.step.value})"
    if job.state is JobState.SUSPENDED:
        return "suspended; it runs on when its CPUs are free" if ref in state.stopped else "suspended, not by us"
    if job.state is not JobState.PENDING:
        return "runs" if job.runs else job.state.value.lower()
    return _why_it_waits(job, ref, suggested, now)


def _why_it_waits(job: Job, ref: str, suggested: Plan | None, now: float) -> str:
    reasons: Mapping[str, Reason] = {wait.ref: wait.reason for wait in suggested.waits} if suggested else {}
    starts = {start.ref for start in suggested.starts} if suggested else set()
    if ref in reasons:
        return f"waits: {TEXT[reasons[ref]]}"
    if ref in starts:
        return "fits on idle nodes: Slurm starts it any moment"
    if job.special_exit and is_held_for_owner(job):
        return "held for its owner: omfs-run could not restart it from a checkpoint (see the job's output)"
    if job.hold is not Hold.NONE and not is_held_by_us(job):
        return f"waits in a hold that is not ours ({job.reason})"
    if not could_start(job, now):
        return f"waits for something else than nodes ({job.reason})"
    return "waits"
