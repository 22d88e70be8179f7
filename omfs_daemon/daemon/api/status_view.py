"""The shape behind --json beside what makes it."""

from __future__ import annotations

from typing import TypedDict
from omfs_daemon.daemon.api.cycle_report import Report
from omfs_daemon.preemption.state import State
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.arrays.usage import AccountUse
from omfs_daemon.cluster.holds import is_held_by_us

# -- status ------------------------------------------------------------------------------------------


class PauseView(TypedDict):
    by: str
    since: float
    reason: str


class ClusterView(TypedDict):
    nodes: int
    nodes_up: int
    cpus: int
    cpus_used: int
    cpus_idle: int


class AccountView(TypedDict):
    """One account; ``parent`` is "" at the top. ``percent`` is of the parent, the CPUs are of the machine.

    borrowed  CPUs used above the entitlement
    lent      CPUs of the entitlement that others use
    pending   CPUs that its waiting jobs ask for
    """

    account: str
    parent: str
    percent: float
    entitled: int
    used: int
    borrowed: int
    lent: int
    pending: int


class StepVictimView(TypedDict):
    job: str
    method: str


class StopUnderWayView(TypedDict):
    beneficiary: str
    account: str
    urgent: bool
    step: str
    victims: list[StepVictimView]
    since: float


StoppedView = TypedDict("StoppedView", {"job": str, "method": str, "since": float, "for": str})


class StatusView(TypedDict):
    """``last_poll``: the last look at Slurm that succeeded; ``held``: jobs that wait in a hold of ours."""

    version: str
    time: float
    gateway: str
    slurm_version: str
    paused: PauseView | None
    dry_run: bool
    last_poll: float | None
    last_error: str | None
    sentence: str
    cluster: ClusterView
    accounts: list[AccountView]
    stops_under_way: list[StopUnderWayView]
    stopped: list[StoppedView]
    held: int
    entitlements_source: str


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
