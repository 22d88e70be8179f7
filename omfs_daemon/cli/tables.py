"""The daemon's answers as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from omfs_daemon.cli.method_tables import past_victims
from omfs_daemon.cli.output import cell, clean, span, table, when
from omfs_daemon.daemon.views import (
    AccountView,
    ActionView,
    EntitlementsView,
    HistoryView,
    PlanView,
    StatusView,
    StopUnderWayView,
    VictimView,
    WayView,
    WhyView,
)


def status(view: StatusView) -> Iterator[RenderableType]:
    """What ``omfs status`` prints."""
    cluster = view["cluster"]
    yield Text(
        f"omfsd {view['version']}, Slurm {clean(view['slurm_version'])} by {clean(view['gateway'])}"
        f"; last look {when(view['last_poll'])}"
    )
    yield Text(
        f"{cluster['nodes_up']} of {cluster['nodes']} nodes up; "
        f"{cluster['cpus_used']} of {cluster['cpus']} CPUs used, {cluster['cpus_idle']} idle; "
        f"{view['held']} jobs held, {len(view['stopped'])} stopped"
    )
    yield from _warnings(view)
    yield cell(view["sentence"])
    yield accounts(view["accounts"], f"CPUs by account (entitlements: {clean(view['entitlements_source'])})")
    if view["stops_under_way"]:
        yield _under_way(view["stops_under_way"], view["time"])
    if view["stopped"]:
        waiting = table("Stopped jobs that wait to go on", ("job", "method", "for", "since"))
        for job in view["stopped"]:
            waiting.add_row(cell(job["job"]), cell(job["method"]), cell(job["for"]), when(job["since"]))
        yield waiting


def _warnings(view: StatusView) -> Iterator[Text]:
    if paused := view["paused"]:
        why = f": {clean(paused['reason'])}" if paused["reason"] else ""
        yield cell(f"PAUSED by {paused['by']} since {when(paused['since'])}{why}", "bold yellow")
    if view["dry_run"]:
        yield Text("dry run: nothing is ordered from Slurm", style="yellow")
    if view["last_error"]:
        yield cell(f"last error: {view['last_error']}", "red")


def accounts(rows: Sequence[AccountView], title: str = "") -> Table:
    """Entitled, used, borrowed, lent and pending CPUs, accounts below their parents."""
    names = ("entitled", "used", "borrowed", "lent", "pending")
    made = table(title, ("account", "%", *names), ("%", *names))
    for depth, row in _by_tree(rows):
        made.add_row(
            cell("  " * depth + row["account"]),
            f"{row['percent']:g}",
            str(row["entitled"]),
            str(row["used"]),
            cell(row["borrowed"] or "", "yellow"),
            cell(row["lent"] or "", "cyan"),
            cell(row["pending"] or ""),
        )
    return made


def _by_tree(rows: Sequence[AccountView], parent: str = "", depth: int = 0) -> Iterator[tuple[int, AccountView]]:
    known = {row["account"] for row in rows}
    for row in rows:
        above = row["parent"] if row["parent"] in known else ""
        if above == parent:
            yield depth, row
            if row["account"]:
                yield from _by_tree(rows, row["account"], depth + 1)


def _under_way(stops: Iterable[StopUnderWayView], now: float) -> Table:
    made = table("Stops under way", ("for job", "account", "step", "victims", "since"))
    for stop in stops:
        victims = ", ".join(f"{victim['job']} ({victim['method']})" for victim in stop["victims"])
        made.add_row(
            cell(stop["beneficiary"] + (" (urgent)" if stop["urgent"] else "")),
            cell(stop["account"]),
            cell(stop["step"]),
            cell(victims),
            f"{span(max(0.0, now - stop['since']))} ago",
        )
    return made


def plan(view: PlanView) -> Iterator[RenderableType]:
    """What ``omfs plan`` prints."""
    yield cell(view["sentence"])
    if view["actions"]:
        yield _actions(view["actions"], "Would be done now")
    if view["refused"]:
        yield _actions(view["refused"], "Refused by the safety gate")


def _actions(actions: Iterable[ActionView], title: str) -> Table:
    made = table(title, ("what", "job", "account", "why", "numbers", "stops"))
    for action in actions:
        made.add_row(
            cell(action["kind"]),
            cell(action["job"]),
            cell(action["account"]),
            cell(action["reason"]),
            cell(", ".join(f"{name} {value:g}" for name, value in action["numbers"].items())),
            cell(_victims(action.get("victims", []))),
        )
    return made


def _victims(victims: Iterable[VictimView]) -> str:
    return ", ".join(_victim(victim) for victim in victims)


def _victim(victim: VictimView) -> str:
    cost = f", about {span(victim['cost_seconds'])}" if victim.get("cost_seconds") else ""
    return f"{victim['job']} of {victim['account']} ({victim['method']}{cost})"


def why(view: WhyView) -> Iterator[RenderableType]:
    """What ``omfs why`` prints."""
    yield cell(
        f"job {view['job']} of {view['user']} in {view['account']}, class {view['class']}, {view['state']}", "bold"
    )
    yield cell(view["now"])
    if view["ways"]:
        yield _ways(view["ways"])
    if view["events"]:
        story = table("", ("when", "event", "what"))
        for event in view["events"]:
            story.add_row(when(event["time"]), cell(event["event"]), cell(event["text"]))
        yield story


def _ways(ways: Iterable[WayView]) -> Table:
    names = ("to stop", "to bring back", "work lost")
    made = table("How it can be stopped", ("method", *names, "why not now"), names)
    for way in ways:
        seconds = (way["stop_seconds"], way["back_seconds"], way["lost_seconds"])
        made.add_row(cell(way["method"]), *(span(value) for value in seconds), cell(way["why_not"], "yellow"))
    return made


def history(view: HistoryView) -> Iterator[RenderableType]:
    """What ``omfs history`` prints."""
    if not view["stops"]:
        yield Text("no job was stopped in that time")
        return
    made = table("", ("when", "for job", "account", "why", "stopped", "waited", "outcome"), ("waited",))
    for stop in view["stops"]:
        waited = stop["waited_seconds"]
        made.add_row(
            when(stop["time"]),
            cell(stop["beneficiary"] + (" (urgent)" if stop["urgent"] else "")),
            cell(stop["account"]),
            cell(stop["reason"]),
            past_victims(stop["victims"]),
            "" if waited is None else span(waited),
            cell(stop["outcome"]),
        )
    yield made


def entitlements(view: EntitlementsView) -> Iterator[RenderableType]:
    """What ``omfs entitlements list`` prints."""
    made = table(f"Entitlements ({clean(view['source'])})", ("account", "percent", "of"), ("percent",))
    for share in view["entitlements"]:
        made.add_row(cell(share["account"]), cell(share["percent"]), cell(share["parent"] or "the machine"))
    yield made
