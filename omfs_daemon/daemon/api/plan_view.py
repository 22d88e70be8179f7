"""The answer to ``omfs plan``."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.private_jobs import without_others
from omfs_daemon.policy.plan import TEXT, Plan, Reason
from omfs_daemon.policy.validator import Verdict

# -- plan --------------------------------------------------------------------------------------------


class VictimView(TypedDict):
    """``cost_seconds``: the estimated cost of the preemption, in a plan."""

    job: str
    account: str
    method: str
    cost_seconds: NotRequired[float]


class ActionView(TypedDict):
    """One thing that would happen now, or that the validator refused; ``reason`` says why in words."""

    kind: str
    job: str
    account: str
    reason: str
    numbers: dict[str, float]
    victims: NotRequired[list[VictimView]]


class StartEstimateView(TypedDict):
    """Seconds since the epoch; null: not within 35 days."""

    job: str
    p50: float | None
    p90: float | None


class PlanView(TypedDict):
    """``start_estimate``: of the first 50 jobs that wait, in order; not there where predictions are off."""

    time: float
    summary: str
    actions: list[ActionView]
    refused: list[ActionView]
    start_estimate: NotRequired[list[StartEstimateView]]


def plan_view(time: float, summary: str, suggested: Plan, verdict: Verdict) -> PlanView:
    """Every suggestion that would be enacted, and what the validator refuses."""
    actions = [
        ActionView(
            kind="preempt for",
            job=planned.preemptor,
            account=planned.account,
            reason=TEXT[planned.reason],
            numbers=dict(planned.numbers),
            victims=[
                VictimView(
                    job=victim.ref,
                    account=victim.account,
                    method=victim.method,
                    cost_seconds=round(verdict.costs[victim.ref, victim.method].total, 1),
                )
                for victim in planned.victims
            ],
        )
        for planned in verdict.preemptions
    ]
    actions += [_action("resume", resume.ref, resume.account, Reason.CPUS_FREE_AGAIN) for resume in verdict.resumes]
    actions += [_action("start", start.ref, start.account, start.reason) for start in suggested.starts]
    actions += [_action("hold", hold.ref, hold.account, hold.reason) for hold in suggested.holds]
    actions += [_action("release", release.ref, release.account, release.reason) for release in suggested.releases]
    refused = [
        ActionView(kind="refused", job=r.ref, account=r.account, reason=r.text, numbers={}) for r in verdict.refused
    ]
    return PlanView(time=time, summary=summary, actions=actions, refused=refused)


def _action(kind: str, job: str, account: str, reason: Reason) -> ActionView:
    return ActionView(kind=kind, job=brief_ref(job), account=account, reason=TEXT[reason], numbers={})


def only_of(caller: Caller, view: PlanView, snapshot: Snapshot, hides_jobs: bool) -> PlanView:
    """The parts of a plan that concern the caller's own jobs; ``hides_jobs``: without others' (PrivateData)."""
    own = {brief_ref(job.ref) for job in snapshot.jobs.values() if job.user == caller.user}

    def concerns(action: ActionView) -> bool:
        return action["job"] in own or any(victim["job"] in own for victim in action.get("victims", ()))

    def shown(action: ActionView) -> ActionView:
        if not hides_jobs:
            return action
        victims = [victim for victim in action.get("victims", ()) if victim["job"] in own]
        found: ActionView = {**action, "reason": without_others(action["reason"])}
        if action["job"] not in own:
            found |= {"job": "", "account": "", "numbers": {}}
        return {**found, "victims": victims} if "victims" in action else found

    return {
        **view,
        "summary": "",
        "actions": [shown(action) for action in view["actions"] if concerns(action)],
        "refused": [shown(action) for action in view["refused"] if concerns(action)],
    }
