"""What the daemon answers on its socket: the shapes behind ``omfs ... --json``.

Times are seconds since the epoch, durations seconds, CPUs whole numbers. Keys are only ever added.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

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


# -- why and history ---------------------------------------------------------------------------------


class EventView(TypedDict):
    time: float
    event: str
    text: str
    data: dict[str, object]


class WayView(TypedDict):
    """A method by which the job may be stopped; ``why_not`` is "" where it could be now. Seconds are estimates."""

    method: str
    stop_seconds: float
    back_seconds: float
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
        "ways": list[WayView],
        "events": list[EventView],
    },
)


class PastStopView(TypedDict):
    time: float
    beneficiary: str
    account: str
    urgent: bool
    reason: str
    victims: list[VictimView]
    waited_seconds: float | None
    outcome: str


class HistoryView(TypedDict):
    stops: list[PastStopView]


# -- entitlements ------------------------------------------------------------------------------------


class ShareView(TypedDict):
    """``percent`` is exact decimal text, of the parent's share."""

    account: str
    percent: str
    parent: str


class EntitlementsView(TypedDict):
    """``source`` names the file in force; ``changed`` says what a change did, a line for each account."""

    source: str
    entitlements: list[ShareView]
    changed: NotRequired[list[str]]


class EntitlementChange(TypedDict):
    """A request: ``set`` needs account and percent, ``remove`` account, ``replace`` shares.

    ``set`` without parent leaves the account where it is; parent "" puts it at the top.
    """

    op: Literal["set", "remove", "replace"]
    account: NotRequired[str]
    percent: NotRequired[str]
    parent: NotRequired[str]
    shares: NotRequired[list[ShareView]]


class DoneView(TypedDict):
    """The answer to ``pause``, ``resume`` and ``reload``: one sentence that says what holds now."""

    done: str
