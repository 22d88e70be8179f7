"""The answers to ``omfs history``: past preemptions and their costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NotRequired, TypedDict

from omfs_daemon.cluster.preempt_methods import IN, OUT
from omfs_daemon.daemon.api.plan_view import VictimView
from omfs_daemon.daemon.store.history_database import PastPreemption
from omfs_daemon.policy.plan import TEXT, Reason
from omfs_daemon.preemption.records import PaidCost


class PastVictimView(VictimView):
    """With what its preemption has cost; left out where unknown, or not for the caller to see.

    preempted        whether it was, in the end: it may have ended before, or been spared

    preempt_seconds  from the order until it had freed its resources
    bytes            written, or moved out
    resume_seconds   until it computed again, once it does
    lost_seconds     of work thrown away
    """

    preempted: bool
    preempt_seconds: NotRequired[float]
    bytes: NotRequired[int]
    resume_seconds: NotRequired[float]
    lost_seconds: NotRequired[float]


class PastPreemptionView(TypedDict):
    time: float
    preemptor: str
    account: str
    urgent: bool
    reason: str
    victims: list[PastVictimView]
    waited_seconds: float | None
    outcome: str


class HistoryView(TypedDict):
    preemptions: list[PastPreemptionView]


class CostView(TypedDict):
    """What one preemption of a job (``direction`` "out") or its return ("in") has cost.

    ``moving_seconds``: of ``seconds``, those for moving its memory (0: unknown); ``bytes``: on all of its ``nodes``
    (a job without nodes counts as one).
    """

    time: float
    job: str
    user: str
    account: str
    method: str
    direction: str
    seconds: float
    moving_seconds: float
    bytes: int
    lost_seconds: float
    nodes: int


class CostsView(TypedDict):
    """Newest first."""

    costs: list[CostView]


class Costs:
    """Finds the costs of one preemption of a job."""

    def __init__(self, rows: Iterable[PaidCost]) -> None:
        """``rows``: oldest first."""
        self._of_job: dict[str, list[PaidCost]] = {}
        for row in rows:
            self._of_job.setdefault(row.job, []).append(row)

    def of(self, job: str, begun: float) -> tuple[PaidCost | None, PaidCost | None]:
        """Of the job's preemption that began then: its cost, and that of the job's return, if it has returned since."""
        rows = [row for row in self._of_job.get(job, ()) if row.time >= begun]
        out = next((row for row in rows if row.direction == OUT), None)
        if out is None:
            return None, None
        after = next((row for row in rows[rows.index(out) + 1 :]), None)
        return out, after if after is not None and after.direction == IN else None


def own_parts(user: str, preemptions: Iterable[PastPreemption]) -> list[PastPreemption]:
    """The preemptions without other users' jobs and accounts (PrivateData=jobs)."""
    return [
        preemption._replace(
            preemptor=preemption.preemptor if preemption.user == user else "",
            account=preemption.account if preemption.user == user else "",
            victims=[victim for victim in preemption.victims if victim.get("user") == user],
        )
        for preemption in preemptions
    ]


def victim_views(preemption: PastPreemption, costs: Costs) -> list[PastVictimView]:
    return [_past_victim(victim, preemption.time, costs) for victim in preemption.victims]


def _past_victim(victim: dict[str, object], begun: float, costs: Costs) -> PastVictimView:
    job = str(victim["job"])
    account, method, preempted = str(victim["account"]), str(victim["method"]), bool(victim.get("preempted", True))
    view = PastVictimView(job=job, account=account, method=method, preempted=preempted)
    out, back = costs.of(job, begun)
    if out is not None:
        view["preempt_seconds"] = out.seconds
        view["bytes"] = out.size
        view["lost_seconds"] = out.lost + (back.lost if back is not None else 0.0)
    if back is not None:
        view["resume_seconds"] = back.seconds
    return view


def costs_view(rows: Sequence[PaidCost]) -> CostsView:
    """``rows``: oldest first."""
    return CostsView(costs=[_cost_view(row) for row in reversed(rows)])


def _cost_view(row: PaidCost) -> CostView:
    return CostView(
        time=row.time,
        job=row.job,
        user=row.user,
        account=row.account,
        method=row.method,
        direction=row.direction,
        seconds=row.seconds,
        moving_seconds=row.moving,
        bytes=row.size,
        lost_seconds=row.lost,
        nodes=row.nodes,
    )


def costs_from_views(views: Iterable[CostView]) -> list[PaidCost]:
    """The rows that were answered, oldest first again."""
    rows = [
        PaidCost(
            view["time"],
            view["job"],
            view["user"],
            view["account"],
            view["method"],
            view["direction"],
            view["seconds"],
            view["moving_seconds"],
            view["bytes"],
            view["lost_seconds"],
            view["nodes"],
        )
        for view in views
    ]
    return rows[::-1]


def past_preemptions(preemptions: list[PastPreemption], paid: list[PaidCost]) -> list[PastPreemptionView]:
    """``paid``: what the caller may see of their costs, oldest first."""
    costs = Costs(paid)
    return [
        PastPreemptionView(
            time=preemption.time,
            preemptor=preemption.preemptor,
            account=preemption.account,
            urgent=preemption.urgent,
            reason=TEXT[Reason(preemption.reason)],
            victims=victim_views(preemption, costs),
            waited_seconds=preemption.waited,
            outcome=preemption.outcome,
        )
        for preemption in preemptions
    ]
