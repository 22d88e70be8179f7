"""The answer to ``omfs when``: when waiting jobs will start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from math import inf, isfinite
from time import time as _now
from typing import TypedDict

from omfs_daemon.cluster.holds import is_held, is_held_by_us, is_unfit, waits_for
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.plan_view import StartEstimateView
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.errors import ControlError
from omfs_daemon.policy.realtime_standing import RealtimeStanding
from omfs_daemon.starts.start_estimates import DRAWS, StartEstimates, at

MOST_ASKED = 1000


class BasisView(TypedDict):
    """``predictor``, ``key``, ``samples``: of the job's own run time; ``draws``: whole futures that were drawn.
    ``p90_held``: the share of the latest ``scored`` starts that came no later than their p90 was, when the jobs were
    first seen and after each hour of waiting, null of fewer than 20; ``not_seen``: what the estimate leaves out."""

    predictor: str
    key: str
    samples: int
    draws: int
    p90_held: float | None
    scored: int
    not_seen: list[str]


class BlockerView(TypedDict):
    """A running job that holds what is needed; ``job`` and ``user`` are "" where they are not for the caller to see."""

    job: str
    user: str
    cpus: int


class BoundView(TypedDict):
    """What a real-time job is promised: a start by ``start_by``. Jobs are preempted for it from ``acts_at`` on. Both
    null without a time limit: then nothing is promised."""

    slowdown_bound: float
    acts_at: float | None
    start_by: float | None


class WhenJobView(TypedDict):
    """Times are seconds since the epoch; null: not within 35 days. ``bound``: null if it is not real-time."""

    job: str
    user: str
    p10: float | None
    p50: float | None
    p90: float | None
    now_reason: str
    waits_for: list[BlockerView]
    slurm_start: float | None
    bound: BoundView | None
    basis: BasisView


class NoStartView(TypedDict):
    """A job of which no start can be said."""

    job: str
    why: str
    bound: BoundView | None


class WhenView(TypedDict):
    taken: float
    jobs: list[WhenJobView]
    none: list[NoStartView]


def when_view(
    caller: Caller,
    refs: Sequence[str],
    service: PredictionService,
    snapshot: Snapshot,
    find: Callable[[str], Job | None],
    reason: Callable[[Job], str],
    standings: Callable[[Sequence[Job]], Mapping[str, RealtimeStanding]],
    at_limit: bool,
) -> WhenView:
    """``find``: a listed job by its reference; ``reason``: why it waits now, in words; ``standings``: of those that are
    real-time."""
    asked = [(ref, find(ref)) for ref in refs]
    why_not = [(ref, why_none(caller, job, ref)) for ref, job in asked]
    none = [NoStartView(job=brief_ref(ref), why=why, bound=None) for ref, why in why_not if why]
    good = [(ref, job) for ref, job in asked if job is not None and not why_none(caller, job, ref)]
    estimates = service.estimates(at_limit, [job.ref for _, job in good])
    share, scored = service.starts_held()
    bounds = {ref: _bound(one) for ref, one in standings([job for _, job in good]).items()}
    slurms = service.expected_by_slurm([job.id for _, job in good]) if good else {}
    views = []
    for ref, job in good:
        name = ref if ref in estimates.rows else job.ref
        found = estimates.of(name)
        if found is None:
            why = "no estimate: it was not listed yet, or no node serves it, or too many jobs wait before it"
            none.append(NoStartView(job=brief_ref(ref), why=why, bound=bounds.get(job.ref)))
            continue
        if not isfinite(found.p10):
            why = f"can never start as things are, or not within 35 days ({reason(job)})"
            none.append(NoStartView(job=brief_ref(ref), why=why, bound=bounds.get(job.ref)))
            continue
        (run,) = service.runs.at_limits([job]) if at_limit else service.runs.of([job])
        basis = BasisView(
            predictor="limit" if at_limit else service.runs.name,
            key=run.key,
            samples=run.samples,
            draws=DRAWS,
            p90_held=share,
            scored=scored,
            not_seen=_not_seen(job, snapshot),
        )
        views.append(
            WhenJobView(
                job=brief_ref(ref),
                user=job.user,
                p10=at(estimates.taken, found.p10),
                p50=at(estimates.taken, found.p50),
                p90=at(estimates.taken, found.p90),
                now_reason=reason(job),
                waits_for=[_blocker(caller, other) for other in estimates.waits_for(name)],
                slurm_start=slurms.get(job.id),
                bound=bounds.get(job.ref),
                basis=basis,
            )
        )
    return WhenView(taken=estimates.taken, jobs=views, none=none)


def why_none(caller: Caller, job: Job | None, ref: str) -> str:
    """Why no start can be said of a job; "" if one can. ControlError if it is another user's."""
    if job is None:
        return "Slurm does not list it"
    if not caller.is_operator and job.user != caller.user:
        raise ControlError(f"job {brief_ref(ref)}: is not yours")
    if job.state is JobState.ENDED:
        ended = (job.start or job.submit) + job.run_time
        return f"has ended, about {_clock(ended)}" if job.start is not None else "has ended without a start"
    if job.state is not JobState.PENDING:
        return f"runs since {_clock(job.start)}" if job.start is not None else "is about to run"
    if is_unfit(job):
        return "can never start: no node has what it requests (BadConstraints)"
    if is_held(job) and not is_held_by_us(job):
        by = "its owner" if job.hold.value == "user" else "an administrator"
        return f"is held by {by}: it starts only after a release"
    if job.eligible == inf or waits_for(job, _now()) in ("Dependency", "DependencyNeverSatisfied"):
        return "depends on another job, which has to end first"
    return ""


def _bound(one: RealtimeStanding) -> BoundView:
    is_promised = isfinite(one.limit)
    return BoundView(
        slowdown_bound=one.bound,
        acts_at=one.due_at if is_promised else None,
        start_by=one.start_by if is_promised else None,
    )


def _blocker(caller: Caller, job: Job) -> BlockerView:
    mine = caller.is_operator or job.user == caller.user
    cpus = sum(allocation.cpus for allocation in job.allocations)
    return BlockerView(job=brief_ref(job.ref) if mine else "", user=job.user if mine else "", cpus=cpus)


def _not_seen(job: Job, snapshot: Snapshot) -> list[str]:
    """What may keep it waiting, and is no part of the estimate."""
    found = []
    if job.request.memory_per_cpu or job.request.memory_per_node:
        found.append("memory")
    if job.licenses:
        found.append("licenses")
    if job.reservation:
        found.append("its reservation")
    reason = waits_for(job, snapshot.taken)
    if reason not in ("", "None", "Resources", "Priority", "BeginTime") and not is_held(job):
        found.append(f"what Slurm says: {reason}")
    return found


def start_line(estimates: StartEstimates, ref: str, other: str) -> str:
    """``will start about 14:20 (nine chances in ten: before 16:05)``, "" if nothing can be said."""
    found = estimates.of(ref) or estimates.of(other)
    if found is None or not isfinite(found.p50):
        return ""
    late = f"before {_clock(estimates.taken + found.p90)}" if isfinite(found.p90) else "not within 35 days for certain"
    return f"will start about {_clock(estimates.taken + found.p50)} (nine chances in ten: {late})"


def first_starts(estimates: StartEstimates, own: Callable[[str], bool], most: int) -> list[StartEstimateView]:
    """Of the first jobs and tasks that wait and that ``own`` accepts, in the order of the pass; a job that is to be
    preempted runs still."""
    found = []
    running = {job.ref for job, _, _ in estimates.running}
    for ref in estimates.order:
        start = estimates.of(ref) if own(ref) and ref not in running else None
        if start is not None:
            p50, p90 = at(estimates.taken, start.p50), at(estimates.taken, start.p90)
            found.append(StartEstimateView(job=ref, p50=p50, p90=p90))
        if len(found) == most:
            break
    return found


def _clock(time: float | None) -> str:
    """``14:20``, with the date if that is another day."""
    if time is None:
        return "an unknown time"
    then = datetime.fromtimestamp(time)
    today = datetime.fromtimestamp(_now()).date()
    return then.strftime("%H:%M" if then.date() == today else "%Y-%m-%d %H:%M")
