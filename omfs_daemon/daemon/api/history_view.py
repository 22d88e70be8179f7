"""What stops have cost, as it is answered on the socket; pure."""

from __future__ import annotations

from typing import NotRequired, TypedDict
from omfs_daemon.daemon.api.plan_view import VictimView
from collections.abc import Iterable, Sequence
from omfs_daemon.preemption.records import Paid
from omfs_daemon.daemon.store.history_database import PastStop
from omfs_daemon.policy.plan import TEXT
from omfs_daemon.policy.plan import Reason


class PastVictimView(VictimView):
    """What its stop has cost; left out where nothing is known, or to be known by the caller.

    stop_seconds    from the order until it had let go
    bytes           that were written, or moved out
    resume_seconds  until it computed again, once it has
    lost_seconds    of work thrown away
    """

    stop_seconds: NotRequired[float]
    bytes: NotRequired[int]
    resume_seconds: NotRequired[float]
    lost_seconds: NotRequired[float]


class PastStopView(TypedDict):
    time: float
    beneficiary: str
    account: str
    urgent: bool
    reason: str
    victims: list[PastVictimView]
    waited_seconds: float | None
    outcome: str


class HistoryView(TypedDict):
    stops: list[PastStopView]


class CostView(TypedDict):
    """What one stop of a job (``way`` "out") or its return ("in") has cost.

    ``moving_seconds``: of ``seconds``, those for moving its memory (0: unknown); ``bytes``: on all of its ``nodes``
    (a job that left its nodes counts as one).
    """

    time: float
    job: str
    user: str
    account: str
    method: str
    way: str
    seconds: float
    moving_seconds: float
    bytes: int
    lost_seconds: float
    nodes: int


class CostsView(TypedDict):
    """Newest first, as stops are."""

    costs: list[CostView]

OUT, IN = "out", "in"


class Costs:
    """Rows by job, to be found by the stop that they belong to."""

    def __init__(self, rows: Iterable[Paid]) -> None:
        """``rows``: oldest first."""
        self._of_job: dict[str, list[Paid]] = {}
        for row in rows:
            self._of_job.setdefault(row.job, []).append(row)

    def of(self, job: str, begun: float) -> tuple[Paid | None, Paid | None]:
        """The stop of a job that began then, and its return: before it is stopped again, if it has come back."""
        rows = [row for row in self._of_job.get(job, ()) if row.time >= begun]
        stopped = next((row for row in rows if row.way == OUT), None)
        if stopped is None:
            return None, None
        after = next((row for row in rows[rows.index(stopped) + 1 :]), None)
        return stopped, after if after is not None and after.way == IN else None


def past_victims(stop: PastStop, costs: Costs) -> list[PastVictimView]:
    return [_past_victim(victim, stop.time, costs) for victim in stop.victims]


def _past_victim(victim: dict[str, object], begun: float, costs: Costs) -> PastVictimView:
    job = str(victim["job"])
    view = PastVictimView(job=job, account=str(victim["account"]), method=str(victim["method"]))
    stopped, back = costs.of(job, begun)
    if stopped is not None:
        view["stop_seconds"] = stopped.seconds
        view["bytes"] = stopped.size
        view["lost_seconds"] = stopped.lost + (back.lost if back is not None else 0.0)
    if back is not None:
        view["resume_seconds"] = back.seconds
    return view


def costs_view(rows: Sequence[Paid], limit: int) -> CostsView:
    """The newest ``limit`` of the rows, which come oldest first."""
    return CostsView(costs=[_cost_view(row) for row in reversed(rows[-limit:])])


def _cost_view(row: Paid) -> CostView:
    return CostView(
        time=row.time,
        job=row.job,
        user=row.user,
        account=row.account,
        method=row.method,
        way=row.way,
        seconds=row.seconds,
        moving_seconds=row.moving,
        bytes=row.size,
        lost_seconds=row.lost,
        nodes=row.nodes,
    )


def paid(views: Iterable[CostView]) -> list[Paid]:
    """The rows that were answered, oldest first again."""
    rows = [
        Paid(
            view["time"],
            view["job"],
            view["user"],
            view["account"],
            view["method"],
            view["way"],
            view["seconds"],
            view["moving_seconds"],
            view["bytes"],
            view["lost_seconds"],
            view["nodes"],
        )
        for view in views
    ]
    return rows[::-1]


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
