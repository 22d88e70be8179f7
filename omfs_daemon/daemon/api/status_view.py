"""The answer to ``omfs status``."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.holds import is_held_by_us
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.scope import is_out_of_scope
from omfs_daemon.daemon.api.cycle_report import CycleReport
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.preemption.state import State

JOBS_SHOWN = 100
WEEK = 7 * 86400.0

# -- status ------------------------------------------------------------------------------------------


class PauseView(TypedDict):
    by: str
    since: float
    reason: str


class ClusterView(TypedDict):
    """``cpus_shared``: of which entitlements are parts: in scope, on nodes that are up, or still in use on others."""

    nodes: int
    nodes_up: int
    cpus: int
    cpus_shared: int
    cpus_used: int
    cpus_idle: int


class AccountView(TypedDict):
    """One account; ``parent`` is "" at the top. ``percent`` is of the parent, CPUs are of the cluster; ``cpus``: where
    it owns a number of CPUs, and then ``percent`` is 0.

    borrowed  CPUs used above the entitlement
    lent      CPUs of the entitlement that others use
    pending   CPUs that its pending jobs request
    """

    account: str
    parent: str
    percent: float
    cpus: NotRequired[int | None]
    entitled: int
    used: int
    borrowed: int
    lent: int
    pending: int


class StepVictimView(TypedDict):
    job: str
    method: str


class PreemptionView(TypedDict):
    preemptor: str
    account: str
    urgent: bool
    step: str
    victims: list[StepVictimView]
    since: float


PreemptedJobView = TypedDict("PreemptedJobView", {"job": str, "method": str, "since": float, "for": str})


class HeldView(TypedDict):
    """A job, or that many tasks of an array; ``cpus``: of each."""

    job: str
    user: str
    account: str
    tasks: int
    cpus: int


class SetAsideView(TypedDict):
    job: str
    user: str
    why: str


class RefusedReloadView(TypedDict):
    time: float
    text: str


class DaemonView(TypedDict):
    """The daemon and its connection. ``last_poll``: when Slurm last answered in full; ``reload_refused``: the last
    reload, if it was."""

    version: str
    time: float
    gateway: str
    slurm_version: str
    paused: PauseView | None
    dry_run: bool
    last_poll: float | None
    last_error: str | None
    summary: str
    entitlements_source: str
    entitlements_conflict: NotRequired[str]
    reload_refused: NotRequired[RefusedReloadView]


class BoundsView(TypedDict):
    """Of the real-time jobs that have started within ``WEEK``: within their bound, and too late."""

    kept: int
    missed: int


class PairView(TypedDict):
    """Of two daemons: whether this one acts, on which host the active one is ("" if unknown), and its epoch."""

    active: bool
    host: str
    epoch: int
    text: str


class StatusView(DaemonView):
    """``held``: how many jobs the daemon or the submit plug-in holds; ``set_aside``: how many jobs the daemon leaves to
    Slurm because it cannot do otherwise; ``held_jobs``, ``set_aside_jobs``: the first of them; users see their own;
    ``scope``: for people, "" for all jobs; ``not_in_scope``: how many jobs are out of it; ``bounds``: None without
    real-time classes; ``pair``: only with ``daemon.shared_directory``."""

    cluster: ClusterView
    accounts: list[AccountView]
    preemptions_under_way: list[PreemptionView]
    preempted: list[PreemptedJobView]
    held: int
    held_jobs: list[HeldView]
    set_aside: int
    set_aside_jobs: list[SetAsideView]
    scope: str
    not_in_scope: int
    bounds: BoundsView | None
    pair: NotRequired[PairView]


def account_views(rows: tuple[AccountUsage, ...], tree: AccountTree) -> list[AccountView]:
    """One row per account; ``(others)`` only where it is entitled to, uses, or requests something."""
    own = {entitlement.name: entitlement for entitlement in tree.entitlements}
    views = []
    for row, entity in zip(rows, tree.entities, strict=True):
        entitlement = own.get(row.account)
        if entitlement is not None:
            part = float(entitlement.percent)
        elif row.entitled or row.used or row.pending:
            above = tree.entities[entity.path[1]].entitlement if len(entity.path) > 1 else 1
            part = round(float(entity.entitlement / above * 100), 6) if above else 0.0
        else:
            continue
        views.append(
            AccountView(
                account=row.account,
                parent=row.parent,
                percent=part,
                cpus=entitlement.cpus if entitlement is not None else None,
                entitled=row.entitled,
                used=row.used,
                borrowed=row.borrowed,
                lent=row.lent,
                pending=row.pending,
            )
        )
    return views


def cluster_view(report: CycleReport) -> ClusterView:
    snapshot = report.snapshot
    if snapshot is None:
        return ClusterView(nodes=0, nodes_up=0, cpus=0, cpus_shared=0, cpus_used=0, cpus_idle=0)
    up = [node for node in snapshot.nodes.values() if node.up]
    used = sum(allocation.cpus for job in snapshot.jobs.values() if job.holds_cpus for allocation in job.allocations)
    cpus = sum(node.cpus for node in snapshot.nodes.values())
    idle = max(0, sum(node.cpus for node in up) - used)
    return ClusterView(
        nodes=len(snapshot.nodes),
        nodes_up=len(up),
        cpus=cpus,
        cpus_shared=report.plan.cpus if report.plan is not None else cpus,
        cpus_used=used,
        cpus_idle=idle,
    )


def pause_view(state: State) -> PauseView | None:
    pause = state.pause
    return None if pause is None else PauseView(by=pause.by, since=pause.at, reason=pause.reason)


def preemptions_under_way(state: State) -> list[PreemptionView]:
    return [
        PreemptionView(
            preemptor=preemption.preemptor.ref,
            account=preemption.preemptor.account,
            urgent=preemption.preemptor.urgent,
            step=preemption.step.value,
            victims=[{"job": victim.ref, "method": victim.method} for victim in preemption.victims],
            since=preemption.begun,
        )
        for _, preemption in sorted(state.preemptions.items())
    ]


def preempted_jobs(state: State) -> list[PreemptedJobView]:
    return [
        {"job": ref, "method": job.method, "since": job.at, "for": job.preemptor}
        for ref, job in sorted(state.preempted.items(), key=lambda item: item[1].at)
    ]


def held_jobs(report: CycleReport, user: str | None) -> list[HeldView]:
    """The jobs that the daemon or the submit plug-in holds; with ``user``, those of that user."""
    if report.snapshot is None:
        return []
    return [
        {
            "job": brief_ref(job.ref),
            "user": job.user,
            "account": job.account,
            "tasks": job.tasks,
            "cpus": job.request.cpus,
        }
        for job in report.snapshot.jobs.values()
        if user in (None, job.user) and is_held_by_us(job)
    ]


def set_aside_jobs(report: CycleReport, user: str | None) -> list[SetAsideView]:
    """The jobs that are set aside; with ``user``, those of that user."""
    if report.snapshot is None:
        return []
    return [
        {"job": brief_ref(job.ref), "user": job.user, "why": job.set_aside}
        for job in report.snapshot.jobs.values()
        if job.set_aside and not is_out_of_scope(job) and user in (None, job.user)
    ]


def out_of_scope_count(report: CycleReport) -> int:
    if report.snapshot is None or report.rules.scope.is_everything:
        return 0
    return sum(job.tasks for job in report.snapshot.jobs.values() if is_out_of_scope(job))


def bounds_view(rules: Rules, history_database: HistoryDatabase, now: float) -> BoundsView | None:
    if all(rule.realtime is None for rule in rules.classes):
        return None
    kept, missed = history_database.bounds(now - WEEK)
    return {"kept": kept, "missed": missed}
