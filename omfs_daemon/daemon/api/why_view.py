"""The answer to ``omfs why``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf
from typing import NotRequired, TypedDict

from omfs_daemon.cluster.het_jobs import part_ref
from omfs_daemon.cluster.holds import (
    could_start,
    is_held,
    is_held_by_us,
    is_held_for_owner,
    is_released_by_administrator,
    waits_for,
)
from omfs_daemon.cluster.job_refs import asked_ref, brief_ref, share_tasks
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.api.realtime_view import RealtimeView, only_jobs_of, realtime_view
from omfs_daemon.daemon.private_jobs import without_others
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.errors import ConfigError, ControlError, UnansweredError
from omfs_daemon.policy.plan import Plan, Wait
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.victims.method_availability import WHY_NOT_TEXT, MethodAvailability
from omfs_daemon.policy.victims.remaining_times import RemainingTimes
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.state import State

# -- why and history ---------------------------------------------------------------------------------


class EventView(TypedDict):
    """``job``: as it was named then; a task of an array may have been one of a list."""

    time: float
    job: str
    event: str
    text: str
    data: dict[str, object]


class MethodOptionView(TypedDict):
    """A method by which the job may be preempted; ``why_not`` is "" if it could be now. Seconds are estimates."""

    method: str
    preempt_seconds: float
    resume_seconds: float
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
        "methods": list[MethodOptionView],
        "realtime": RealtimeView | None,
        "start": NotRequired[str],
        "parts": NotRequired[list[str]],
        "events": list[EventView],
    },
)


def why_view(
    caller: Caller,
    ref: str,
    report: CycleReport,
    state: State,
    rules: Rules,
    history_database: HistoryDatabase,
    suggested: Plan | None,
) -> WhyView:
    """A job's history; ControlError if nothing is known of it, or if it is another user's.

    ``ref``: a job, a task of an array, an array, a part of a heterogeneous job, or a raw id.
    """
    job = listed_job(report, ref)
    named = _name_of(job, ref, history_database)
    is_array = job is not None and str(job.array_id) == ref
    events = history_database.of_job(ref if is_array else named)
    users = {job.user} if job is not None else {event.user for event in events if event.user}
    if job is None and not events:
        raise ControlError(f"job {ref}: Slurm does not list it, and omfsd has never acted on it")
    if not caller.is_operator and caller.user not in users:
        raise ControlError(f"job {ref}: is not yours")
    view: WhyView = {
        "job": brief_ref(named),
        "user": job.user if job is not None else next(iter(sorted(users)), ""),
        "account": job.account if job is not None else events[-1].account,
        "class": _class_text(rules, job, report.at) if job is not None else "",
        "state": job.state.value if job is not None else "ENDED",
        "now": _now(job, named, state, suggested, report.at) if job is not None else "Slurm lists it no longer",
        "methods": _methods(rules, job, report.snapshot) if job is not None and job.runs else [],
        "realtime": _realtime(rules, job, report, state),
        "events": [
            EventView(time=event.time, job=event.job, event=event.event, text=event.text, data=dict(event.data))
            for event in events
        ],
    }
    if job is not None and job.parts:
        ended = [f"{job.ended_part} has ended, so that it is only suspended"] if job.ended_part else []
        view["parts"] = [*(_part_text(job, at) for at in range(len(job.parts))), *ended]
    return view


def _part_text(job: Job, at: int) -> str:
    """``169+1: 8 CPUs on n2, n3``; of one that waits, on how many nodes."""
    part = job.parts[at]
    cpus = sum(allocation.cpus for allocation in part.allocations) or part.request.cpus
    nodes = ", ".join(allocation.node for allocation in part.allocations)
    return f"{part_ref(job, at)}: {cpus} CPUs on {nodes or f'{part.request.nodes} or more nodes'}"


def without_others_in(view: WhyView) -> WhyView:
    """Without other users' jobs and accounts (PrivateData=jobs)."""
    events = [
        EventView(
            time=event["time"],
            job=event["job"],
            event=event["event"],
            text=without_others(event["text"]),
            data={name: value for name, value in event["data"].items() if name not in _DATA_OF_OTHERS},
        )
        for event in view["events"]
    ]
    realtime = only_jobs_of(view["user"], view["realtime"]) if view["realtime"] else None
    return {**view, "now": without_others(view["now"]), "realtime": realtime, "events": events}


_DATA_OF_OTHERS = ("preemptor", "victims")


def asked_job(text: str) -> str:
    """The reference in a request; ConfigError if it is none."""
    ref = asked_ref(text)
    if ref is None:
        raise ConfigError(f"job = {text[:40]!r}: must be a job (12), a task (12_3), or a part (12+1)")
    return ref


def listed_job(report: CycleReport, ref: str) -> Job | None:
    """The job, the task, or the array, as Slurm lists it; None if it does not. ControlError before the first poll."""
    return listed_jobs(report)(ref)


def listed_jobs(report: CycleReport) -> Callable[[str], Job | None]:
    """``listed_job`` for many. ControlError before the first poll."""
    if report.snapshot is None:
        raise UnansweredError("Slurm has not answered yet: try again")
    return listed_in(report.snapshot)


def listed_in(snapshot: Snapshot) -> Callable[[str], Job | None]:
    jobs, observation = snapshot.jobs, Observation(snapshot)
    wholes: dict[int, Job] = {}

    def find(ref: str) -> Job | None:
        found = observation.job(ref)
        if found is None and "+" in ref:
            whole = observation.job(ref.partition("+")[0])
            found = whole if whole is not None and whole.parts else None
        if found is None and ref.isdecimal():
            if not wholes:
                wholes.update({part.id: job for job in jobs.values() for part in job.parts})
                wholes.update({job.array_id: job for job in reversed(list(jobs.values())) if job.array_id is not None})
            found = jobs.get(int(ref)) or wholes.get(int(ref))
        return found

    return find


def _name_of(job: Job | None, ref: str, history_database: HistoryDatabase) -> str:
    """The reference of what was asked for: a task of a waiting array, or the job, whose raw id may have been given."""
    if job is None and ref.isdecimal():
        return history_database.task_named(int(ref)) or ref
    return ref if job is None or share_tasks(ref, job.ref) else job.ref


def _methods(rules: Rules, job: Job, snapshot: Snapshot | None) -> list[MethodOptionView]:
    """Cheapest first of those that could be used now, then the others."""
    if snapshot is None:
        return []
    remaining = RemainingTimes(snapshot.remaining)
    availability = MethodAvailability(rules, snapshot.facts, snapshot.sizes, remaining=remaining)
    found = availability.all(job, classify(rules, job))
    return [
        MethodOptionView(
            method=option.method,
            preempt_seconds=round(option.cost.preempt, 1),
            resume_seconds=round(option.cost.resume, 1),
            lost_seconds=round(option.cost.lost, 1),
            why_not="" if option.why_not is None else WHY_NOT_TEXT[option.why_not],
        )
        for option in sorted(found, key=lambda option: (option.why_not is not None, option.cost.total))
    ]


def _realtime(rules: Rules, job: Job | None, report: CycleReport, state: State) -> RealtimeView | None:
    if job is None or report.snapshot is None:
        return None
    return realtime_view(job, report.snapshot, state.preemption_history(rules.methods), rules, report.at)


def _class_text(rules: Rules, job: Job, now: float) -> str:
    job_class = classify(rules, job)
    if job_class.urgent:
        return f"{job_class.name}: urgent"
    if job_class.realtime is not None:
        return f"{job_class.name}: real-time"
    methods = f" ({', '.join(job_class.methods)})" if job_class.methods else ""
    exempt = rules.exemptions.of(job, now)
    why = f"; never preempted, for {exempt.by} has exempted {exempt.kind.value} {exempt.name}" if exempt else ""
    return f"{job_class.name}: {job_class.preemptibility.value}{methods}{why}"


def _now(job: Job, ref: str, state: State, suggested: Plan | None, now: float) -> str:
    for preemption in state.preemptions.values():
        if share_tasks(preemption.preemptor.ref, ref):
            return f"jobs are being preempted for it (step: {preemption.step.value})"
        mine = [victim for victim in preemption.victims if share_tasks(victim.ref, ref)]
        if mine and mine[0].ends_by_itself:
            return f"runs; job {preemption.preemptor.ref} is to start on its CPUs once it has ended"
        if mine:
            return f"is being preempted for job {preemption.preemptor.ref} (step: {preemption.step.value})"
    if job.set_aside:
        return _why_set_aside(job)
    if job.state is JobState.SUSPENDED:
        return "suspended; it runs on when its CPUs are free" if ref in state.preempted else "suspended, not by us"
    if job.state is not JobState.PENDING:
        return "runs" if job.runs else job.state.value.lower()
    return why_it_waits(job, ref, suggested, now)


def _why_set_aside(job: Job) -> str:
    if is_out_of_scope(job):
        return "not in scope: omfsd leaves it to Slurm, and preempts neither it nor others for it"
    held = "; it stays held until its owner changes or cancels it" if is_held_by_us(job) else ""
    return f"set aside: {job.set_aside}. omfsd leaves it to Slurm, and preempts neither it nor others for it{held}"


def why_it_waits(job: Job, ref: str, suggested: Plan | None, now: float) -> str:
    """Why a waiting job waits, in words; ``suggested``: the present plan."""
    waits: Mapping[str, Wait] = {wait.ref: wait for wait in suggested.waits} if suggested else {}
    starts = {start.ref for start in suggested.starts} if suggested else set()
    if is_released_by_administrator(job) and not is_held(job):
        return f"waits, released by an administrator: it is not held again while it waits ({job.reason})"
    if wait := _wait_of(job, ref, waits):
        nodes = ", ".join(sorted(job.doubted))
        return f"waits: {wait.text}" + (f". Not planned on {nodes}: {_DOUBTED}" if nodes else "")
    if ref in starts:
        return "fits on idle nodes: Slurm starts it any moment"
    if job.special_exit and is_held_for_owner(job):
        return "held for its owner: omfs-run could not restart it from a checkpoint (see the job's output)"
    if is_held(job) and not is_held_by_us(job):
        return f"waits in a hold that is not ours ({job.reason})"
    if job.eligible is not None and now < job.eligible < inf:
        return f"waits: may start from {_clock_text(job.eligible, now)} ({waits_for(job, now)})"
    if not could_start(job, now):
        return f"waits: Slurm would not start it ({waits_for(job, now)})"
    return "waits"


def _clock_text(time: float, now: float) -> str:
    """``01:41:56``, with the date if it is another day; local time."""
    at, today = datetime.fromtimestamp(time), datetime.fromtimestamp(now)
    return f"{at:%H:%M:%S}" if at.date() == today.date() else f"{at:%Y-%m-%d %H:%M:%S}"


_DOUBTED = "Slurm did not start a job that requests the same there, although it seemed to fit"


def _wait_of(job: Job, ref: str, waits: Mapping[str, Wait]) -> Wait | None:
    """A plan names the first task of an array that waits; the others wait for the same."""
    for known in (ref, job.ref):
        if known in waits:
            return waits[known]
    tasks = f"{job.array_id}_"
    return next((wait for known, wait in waits.items() if known.startswith(tasks)), None)
