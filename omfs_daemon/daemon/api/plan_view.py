"""The shape behind --json beside what makes it."""

from __future__ import annotations

from typing import NotRequired, TypedDict
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.policy.validator import REFUSAL_TEXT
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.plan import TEXT
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.victims.method_availability import Ways


# -- plan --------------------------------------------------------------------------------------------


class VictimView(TypedDict):
    """``cost_seconds``: what its stop is estimated to cost, of a plan."""

    job: str
    account: str
    method: str
    cost_seconds: NotRequired[float]


class ActionView(TypedDict):
    """One thing that would happen now, or that the safety gate refused; ``reason`` says why in words."""

    kind: str
    job: str
    account: str
    reason: str
    numbers: dict[str, float]
    victims: NotRequired[list[VictimView]]


class PlanView(TypedDict):
    time: float
    sentence: str
    actions: list[ActionView]
    refused: list[ActionView]


def plan_view(
    time: float, sentence: str, suggested: Plan, verdict: Verdict, snapshot: Snapshot, rules: Rules
) -> PlanView:
    """Every suggestion that would be enacted, and what the gate refuses."""
    costs = _costs(verdict, snapshot, rules)
    actions = [
        ActionView(
            kind="stop for",
            job=reclaim.beneficiary,
            account=reclaim.account,
            reason=TEXT[reclaim.reason],
            numbers=dict(reclaim.numbers),
            victims=[
                VictimView(job=v.ref, account=v.account, method=v.method, cost_seconds=costs[v.ref, v.method])
                for v in reclaim.victims
            ],
        )
        for reclaim in verdict.reclaims
    ]
    actions += [_action("resume", resume.ref, resume.account, Reason.CPUS_FREE_AGAIN) for resume in verdict.resumes]
    actions += [_action("start", start.ref, start.account, start.reason) for start in suggested.starts]
    actions += [_action("hold", hold.ref, hold.account, hold.reason) for hold in suggested.holds]
    actions += [_action("release", release.ref, release.account, release.reason) for release in suggested.releases]
    refused = [
        ActionView(kind="refused", job=r.ref, account=r.account, reason=REFUSAL_TEXT[r.reason], numbers={})
        for r in verdict.refused
    ]
    return PlanView(time=time, sentence=sentence, actions=actions, refused=refused)


def _costs(verdict: Verdict, snapshot: Snapshot, rules: Rules) -> dict[tuple[str, str], float]:
    """What each stop is estimated to cost, in seconds."""
    picture, ways = Picture(snapshot), Ways(rules, snapshot.facts, snapshot.sizes)
    found = {}
    for victim in (victim for reclaim in verdict.reclaims for victim in reclaim.victims):
        job = picture.job(victim.ref)
        found[victim.ref, victim.method] = round(ways.cost(job, victim.method).total, 1) if job is not None else 0.0
    return found


def _action(kind: str, job: str, account: str, reason: Reason) -> ActionView:
    return ActionView(kind=kind, job=job, account=account, reason=TEXT[reason], numbers={})


def only_of(caller: Caller, view: PlanView, snapshot: Snapshot) -> PlanView:
    """The parts of a plan that concern the caller's own jobs."""
    own = {job.ref for job in snapshot.jobs.values() if job.user == caller.user}

    def concerns(action: ActionView) -> bool:
        return action["job"] in own or any(victim["job"] in own for victim in action.get("victims", ()))

    return {
        **view,
        "sentence": "",
        "actions": [action for action in view["actions"] if concerns(action)],
        "refused": [action for action in view["refused"] if concerns(action)],
    }
