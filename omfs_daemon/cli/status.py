"""Commands register in main.py; table beside the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.output import when
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.daemon.api.status_view import StopUnderWayView
from omfs_daemon.terminal.account_table import accounts


def status_table(view: StatusView) -> Iterator[RenderableType]:
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
