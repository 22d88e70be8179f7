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


# -- methods -----------------------------------------------------------------------------------------


class PaceView(TypedDict):
    """Seconds whatever the size, and bytes per second of one node; None: the size does not matter."""

    stop_seconds: float
    stop_bytes_per_second: float | None
    back_seconds: float
    back_bytes_per_second: float | None


class WhyNotView(TypedDict):
    """Why a method cannot be used now on some nodes: how many, and the first few by name."""

    why: str
    count: int
    nodes: list[str]


class MethodNowView(TypedDict):
    """``usable``: on so many of ``nodes`` (those that are up); for methods of omfs-run ``ready``: so many jobs."""

    usable: NotRequired[int]
    nodes: NotRequired[int]
    ready: NotRequired[int]
    why_not: list[WhyNotView]


class MethodView(TypedDict):
    """A method that is installed.

    comes_back  "anywhere" or "same nodes"
    frees       of "cpus", "memory", "devices", what others may have of a job that it stopped
    done_by     "slurm", "omfs-run" (in the job) or "omfs-node" (on its nodes)
    built_in    whether it is one of ours, not of a site's package
    now         where it can be used now; left out where no daemon was asked
    """

    name: str
    built_in: bool
    keeps_work: bool
    comes_back: Literal["anywhere", "same nodes"]
    frees: list[str]
    done_by: Literal["slurm", "omfs-run", "omfs-node"]
    pace: PaceView
    stop_timeout_seconds: float
    now: NotRequired[MethodNowView]


class MethodsView(TypedDict):
    """``source``: whose configuration they are told by: "omfsd", or the name of a file."""

    source: str
    methods: list[MethodView]


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
