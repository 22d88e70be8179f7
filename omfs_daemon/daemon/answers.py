"""What the daemon answers on its socket: views made from the latest report, state and story. Pure but for the story."""

from __future__ import annotations

from collections.abc import Mapping

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.callers import Caller
from omfs_daemon.daemon.cost_answers import Costs, past_victims
from omfs_daemon.daemon.cycle import Report
from omfs_daemon.daemon.entitlement_text import to_rows
from omfs_daemon.daemon.entitlements import EntitlementStore
from omfs_daemon.daemon.picture import Picture
from omfs_daemon.daemon.state import State
from omfs_daemon.daemon.story import Paid, PastStop, Story
from omfs_daemon.daemon.views import (
    AccountView,
    ActionView,
    ClusterView,
    EntitlementsView,
    PastStopView,
    PauseView,
    PlanView,
    StoppedView,
    StopUnderWayView,
    VictimView,
    WayView,
    WhyView,
)
from omfs_daemon.errors import ControlError
from omfs_daemon.policy.accounts import AccountTree
from omfs_daemon.policy.gate import REFUSAL_TEXT, Verdict
from omfs_daemon.policy.plan import TEXT, AccountUse, Plan, Reason
from omfs_daemon.policy.queue import could_start, is_held_by_us, is_held_for_owner
from omfs_daemon.policy.rules import Rules, classify
from omfs_daemon.policy.ways import WHY_NOT_TEXT, Ways


def account_views(rows: tuple[AccountUse, ...], tree: AccountTree) -> list[AccountView]:
    """One row an account, ``(others)`` only where it owns, uses or wants something."""
    percent = {share.name: float(share.percent) for share in tree.shares}
    views = []
    for row, entity in zip(rows, tree.entities, strict=True):
        if row.account in percent:
            part = percent[row.account]
        elif row.entitled or row.used or row.pending:
            above = tree.entities[entity.path[1]].share if len(entity.path) > 1 else 1
            part = round(float(entity.share / above * 100), 6) if above else 0.0
        else:
            continue
        views.append(
            AccountView(
                account=row.account,
                parent=row.parent,
                percent=part,
                entitled=row.entitled,
                used=row.used,
                borrowed=row.borrowed,
                lent=row.lent,
                pending=row.pending,
            )
        )
    return views


def cluster_view(report: Report) -> ClusterView:
    snapshot = report.snapshot
    if snapshot is None:
        return ClusterView(nodes=0, nodes_up=0, cpus=0, cpus_used=0, cpus_idle=0)
    up = [node for node in snapshot.nodes.values() if node.up]
    used = sum(share.cpus for job in snapshot.jobs.values() if job.holds_cpus for share in job.shares)
    cpus = sum(node.cpus for node in snapshot.nodes.values())
    idle = max(0, sum(node.cpus for node in up) - used)
    return ClusterView(nodes=len(snapshot.nodes), nodes_up=len(up), cpus=cpus, cpus_used=used, cpus_idle=idle)


def pause_view(state: State) -> PauseView | None:
    pause = state.pause
    return None if pause is None else PauseView(by=pause.by, since=pause.at, reason=pause.reason)


def stops_under_way(state: State) -> list[StopUnderWayView]:
    return [
        StopUnderWayView(
            beneficiary=stop.beneficiary.ref,
            account=stop.beneficiary.account,
            urgent=stop.beneficiary.urgent,
            step=stop.step.value,
            victims=[{"job": victim.ref, "method": victim.method} for victim in stop.victims],
            since=stop.begun,
        )
        for _, stop in sorted(state.stops.items())
    ]


def stopped_jobs(state: State) -> list[StoppedView]:
    return [
        {"job": ref, "method": stopped.method, "since": stopped.at, "for": stopped.beneficiary}
        for ref, stopped in sorted(state.stopped.items(), key=lambda item: item[1].at)
    ]


def held_count(report: Report) -> int:
    if report.snapshot is None:
        return 0
    return sum(job.tasks for job in report.snapshot.jobs.values() if is_held_by_us(job))


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


def past_stops(stops: list[PastStop], paid: list[Paid]) -> list[PastStopView]:
    """``paid``: what the caller may see of their costs, oldest first."""
    costs = Costs(paid)
    return [
        PastStopView(
            time=stop.time,
            beneficiary=stop.beneficiary,
            account=stop.account,
            urgent=stop.urgent,
            reason=TEXT[Reason(stop.reason)],
            victims=past_victims(stop, costs),
            waited_seconds=stop.waited,
            outcome=stop.outcome,
        )
        for stop in stops
    ]


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


def entitlements_view(store: EntitlementStore) -> EntitlementsView:
    return EntitlementsView(
        source=store.source,
        entitlements=to_rows(store.shares),
    )
