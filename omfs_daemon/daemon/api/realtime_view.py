"""What ``omfs why`` says of a real-time job."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TypedDict

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import PreemptionHistory, Snapshot
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.realtime_queue import realtime_need, standing_of
from omfs_daemon.policy.realtime_standing import RealtimeStanding, waits_since
from omfs_daemon.policy.rules.classes import Rules, classify
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import running_slowdown
from omfs_daemon.policy.victims.candidates import Candidates
from omfs_daemon.policy.victims.cheapest import CheapSet, cheapest_sets
from omfs_daemon.policy.victims.need import RealtimeNeed
from omfs_daemon.policy.victims.victim_costs import cost_of_victim
from omfs_daemon.policy.working_state import WorkingState

SETS = 3
"""The most sets of victims that are shown."""


class VictimCostView(TypedDict):
    """``cost`` = CPUs times the three factors. ``job``, ``user``: "" where they are not for the caller to see."""

    job: str
    user: str
    method: str
    cpus: int
    slowdown: float
    slowdown_factor: float
    checkpoint_factor: float
    remaining_factor: float
    cost: float


class CheapSetView(TypedDict):
    cost: float
    victims: list[VictimCostView]


class RealtimeView(TypedDict):
    """``slowdown``: if it started now, or as it started, and used its time limit up; None without a time limit.
    ``seconds_left``: until jobs are preempted for it; None if it runs or has no time limit. ``sets``: the cheapest sets
    of victims now, if it waits."""

    text: str
    category: str
    bound: float
    act_at: float
    slowdown: float | None
    seconds_left: float | None
    sets: list[CheapSetView]


def realtime_standings(
    jobs: Iterable[Job], snapshot: Snapshot, history: PreemptionHistory, rules: Rules, now: float
) -> dict[str, RealtimeStanding]:
    """How those of the jobs that are real-time and wait stand, by reference."""
    of_class = [(job, classify(rules, job)) for job in jobs if job.state is JobState.PENDING]
    found = [(job, one.name, one.realtime) for job, one in of_class if one.realtime is not None]
    if not found:
        return {}
    state = WorkingState(SnapshotArrays(snapshot), history, rules)
    return {job.ref: standing_of(state, job, terms, name, now) for job, name, terms in found}


def realtime_view(
    job: Job, snapshot: Snapshot, history: PreemptionHistory, rules: Rules, now: float
) -> RealtimeView | None:
    """None if the job is not real-time, or neither waits nor runs."""
    job_class = classify(rules, job)
    terms = job_class.realtime
    if terms is None or not (job.runs or job.state is JobState.PENDING):
        return None
    return realtime_view_in(WorkingState(SnapshotArrays(snapshot), history, rules), job, job_class.name, terms, now)


def realtime_view_in(state: WorkingState, job: Job, name: str, terms: RealtimeTerms, now: float) -> RealtimeView:
    """Likewise of a job of the class ``name`` that waits or runs."""
    one = standing_of(state, job, terms, name, now)
    promised = f"its class promises a slowdown of at most {terms.bound:g}"
    if job.runs:
        slowdown = running_slowdown(waits_since(job, state.history.runs), one.limit, now, job.run_time)
        text = f"{promised}; it is {slowdown:.2f} if the job uses its time limit up"
        return RealtimeView(
            text=text if isfinite(one.limit) else f"{promised}; {one.text(now)}", category=one.category,
            bound=terms.bound, act_at=one.act_at, slowdown=round(slowdown, 4) if isfinite(one.limit) else None,
            seconds_left=None, sets=[],
        )  # fmt: skip
    law = realtime_need(state, terms, now)
    candidates = state.candidates(now)
    need = state.need_of(job)._replace(realtime=law)
    sets = cheapest_sets(need, candidates, state.capacity.then, state.usage, state.rules)
    none = "" if sets else f"; {_NONE}"
    return RealtimeView(
        text=f"{promised}; {one.text(now)}{none}",
        category=one.category,
        bound=terms.bound,
        act_at=one.act_at,
        slowdown=round(one.slowdown, 4) if isfinite(one.limit) else None,
        seconds_left=round(max(0.0, one.due_at - now), 1) if isfinite(one.limit) else None,
        sets=[_set_view(cheap, candidates, law, state.rules) for cheap in sets[:SETS]],
    )


_NONE = (
    "no set of jobs may be preempted for it now: those that run are urgent, real-time, or non-preemptible, belong to "
    "accounts within their entitlement, or are above their slowdown threshold"
)


def _set_view(cheap: CheapSet, candidates: Candidates, law: RealtimeNeed, rules: Rules) -> CheapSetView:
    views = []
    for at, method in cheap.choice.victims:
        job = candidates.jobs[at]
        cost = cost_of_victim(job, law, rules, candidates.outlay(at, method))
        views.append(
            VictimCostView(
                job=job.ref,
                user=job.user,
                method=method,
                cpus=cost.cpus,
                slowdown=round(cost.slowdown, 3),
                slowdown_factor=round(cost.slowdown_term, 3),
                checkpoint_factor=round(cost.checkpoint_term, 3),
                remaining_factor=round(cost.remaining_term, 3),
                cost=round(cost.total, 2),
            )
        )
    return CheapSetView(cost=round(cheap.cost, 2), victims=views)


def only_jobs_of(user: str, view: RealtimeView) -> RealtimeView:
    """Without who the victims of others are (PrivateData=jobs)."""
    return {
        **view,
        "sets": [{**one, "victims": [_shown_to(user, each) for each in one["victims"]]} for one in view["sets"]],
    }


def _shown_to(user: str, victim: VictimCostView) -> VictimCostView:
    return victim if victim["user"] == user else {**victim, "job": "", "user": ""}
