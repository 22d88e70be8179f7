"""``omfs status``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import typer

from omfs_daemon.terminal.account_table import account_table
from omfs_daemon.terminal.output import cell, print_json, show, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from omfs_daemon.daemon.api.status_view import PreemptionView, StatusView


def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Show how the cluster is shared among the accounts now.

    CPUs entitled, used, borrowed, lent, and requested by pending jobs; preemptions under way.
    """
    view = session_of(context).client().status()
    print_json(view) if as_json else show(*status_table(view))


def status_table(view: StatusView) -> Iterator[RenderableType]:
    """What ``omfs status`` prints."""
    pair = view.get("pair")
    if pair is not None and not pair["active"]:
        yield cell(f"omfsd {view['version']} stands by: {pair['text']}")
        return
    if pair is not None:
        yield cell(f"active on {pair['host']} (epoch {pair['epoch']}); the other omfsd stands by")
    cluster = view["cluster"]
    slurm = " ".join(filter(None, ("Slurm", view["slurm_version"], "by", view["gateway"])))  # no version before a poll
    yield cell(f"omfsd {view['version']}, {slurm}; last poll {when(view['last_poll'])}")
    yield cell(
        f"{cluster['nodes_up']} of {cluster['nodes']} nodes up; "
        f"{cluster['cpus_used']} of {cluster['cpus']} CPUs used, {cluster['cpus_idle']} idle; "
        f"{view['held']} jobs held, {len(view['preempted'])} preempted, {view['set_aside']} set aside"
    )
    if view["scope"]:
        yield cell(f"scope: {view['scope']}; {view['not_in_scope']} jobs are not in scope")
    if bounds := view["bounds"]:
        yield cell(
            f"real-time jobs started in the last seven days: {bounds['kept']} within their bound, "
            f"{bounds['missed']} too late"
        )
    yield from _warnings(view)
    yield cell(view["summary"])
    yield account_table(view["accounts"], f"CPUs by account (entitlements: {view['entitlements_source']})")
    if (shared := cluster["cpus_shared"]) < cluster["cpus"] and (numbers := _numbers(view)):
        yield cell(f"Entitlements are parts of {shared} CPUs, those in scope on nodes that are up: {numbers}")
    if view["preemptions_under_way"]:
        yield _under_way(view["preemptions_under_way"], view["time"])
    if view["preempted"]:
        waiting = table("Preempted jobs waiting to continue", ("job", "method", "for", "since"))
        for job in view["preempted"]:
            waiting.add_row(cell(job["job"]), cell(job["method"]), cell(job["for"]), when(job["since"]))
        yield waiting
    if view["held_jobs"]:
        yield _held(view)
    if view["set_aside_jobs"]:
        yield _set_aside(view)


def _numbers(view: StatusView) -> str:
    """What a percentage of fewer CPUs comes to, such as ``bio 50 % = 7``, of the accounts at the top."""
    tops = (row for row in view["accounts"] if not row["parent"] and row.get("cpus") is None)
    return ", ".join(f"{row['account']} {row['percent']:g} % = {row['entitled']}" for row in tops)


def _warnings(view: StatusView) -> Iterator[Text]:
    if paused := view["paused"]:
        why = f": {paused['reason']}" if paused["reason"] else ""
        yield cell(f"PAUSED by {paused['by']} since {when(paused['since'])}{why}", "bold yellow")
    if view["dry_run"]:
        yield cell("dry run: no orders are sent to Slurm", "yellow")
    refused = view.get("reload_refused")
    if refused:
        yield cell(f"reload refused {when(refused['time'])}, nothing of it is in force: {refused['text']}", "red")
    if (conflict := view.get("entitlements_conflict")) and not (refused and conflict in refused["text"]):
        yield cell(f"entitlements: {conflict}", "red")
    if view["last_error"]:
        yield cell(f"last error: {view['last_error']}", "red")


def _held(view: StatusView) -> Table:
    shown = view["held_jobs"]
    more = f"; the first {len(shown)}" if sum(job["tasks"] for job in shown) < view["held"] else ""
    made = table(f"Held jobs (omfs why JOB says why{more})", ("job", "user", "account", "CPUs"), ("CPUs",))
    for job in shown:
        cpus = f"{job['tasks']} x {job['cpus']}" if job["tasks"] > 1 else str(job["cpus"])
        made.add_row(cell(job["job"]), cell(job["user"]), cell(job["account"]), cpus)
    return made


def _set_aside(view: StatusView) -> Table:
    shown = view["set_aside_jobs"]
    more = f" (the first {len(shown)})" if len(shown) < view["set_aside"] else ""
    made = table(f"Jobs set aside, which omfsd leaves to Slurm{more}", ("job", "user", "why"))
    for job in shown:
        made.add_row(cell(job["job"]), cell(job["user"]), cell(job["why"]))
    return made


def _under_way(preemptions: Iterable[PreemptionView], now: float) -> Table:
    made = table("Preemptions under way", ("for job", "account", "step", "victims", "since"))
    for preemption in preemptions:
        victims = ", ".join(f"{victim['job']} ({victim['method']})" for victim in preemption["victims"])
        made.add_row(
            cell(preemption["preemptor"] + (" (urgent)" if preemption["urgent"] else "")),
            cell(preemption["account"]),
            cell(preemption["step"]),
            cell(victims),
            f"{span(max(0.0, now - preemption['since']))} ago",
        )
    return made
