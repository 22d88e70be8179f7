"""``omfs history``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cli.history_hours import hour_rows, hours_table
from omfs_daemon.cluster.preempt_methods import OUT
from omfs_daemon.daemon.api.operations import LONGEST_HISTORY
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.output import cell, print_json, show, size_text, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from omfs_daemon.daemon.api.history_view import CostsView, HistoryView, PastVictimView


def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=LONGEST_HISTORY, help="The most rows to list.")] = 20,
    since: Annotated[
        str, typer.Option(help="The earliest time: 30m, 6h or 2d ago, or a time such as 2026-03-01T14:00.")
    ] = "7d",
    costs: Annotated[
        bool, typer.Option("--costs", help="List each preemption and each resume of a job, with its cost.")
    ] = False,
    hours: Annotated[
        bool,
        typer.Option(
            "--hours",
            help="List hours: how many jobs started, how long they had waited, and CPU hours that were idle, by cause. "
            "For operators.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List past preemptions, newest first, and what they cost.

    And how long each preemptor waited. Users see what concerns their own jobs, operators all.
    """
    client, begin = session_of(context).client(), seconds_since_epoch(since, time.time())
    if costs and hours:
        raise ConfigError("--costs and --hours: only one of them can be listed")
    if hours:
        found = hour_rows(client.idle_hours(begin), client.wait_hours(begin), limit)
        print_json({"hours": found}) if as_json else show(*hours_table(found))
    elif costs:
        rows = client.costs(limit, begin)
        print_json(rows) if as_json else show(*costs_table(rows))
    else:
        view = client.history(limit, begin)
        print_json(view) if as_json else show(*history_table(view))


def victims_text(victims: Iterable[PastVictimView]) -> Text:
    """One victim a line."""
    from rich.text import Text

    return Text("\n").join(cell(f"{victim['job']} of {victim['account']} ({_paid(victim)})") for victim in victims)


def _paid(victim: PastVictimView) -> str:
    """``dmtcp: 2.1 s, 1.5 GB; resumed in 8.0 s; 3.0 s lost``."""
    if not victim["preempted"]:
        return f"{victim['method']}: not preempted"
    moved = [span(victim["preempt_seconds"])] if "preempt_seconds" in victim else []
    moved += [size_text(victim["bytes"])] if victim.get("bytes") else []
    parts = [", ".join(moved)] if moved else []
    parts += [f"resumed in {span(victim['resume_seconds'])}"] if victim.get("resume_seconds") else []
    parts += [f"{span(victim['lost_seconds'])} lost"] if victim.get("lost_seconds") else []
    return victim["method"] + (": " if parts else "") + "; ".join(parts)


def costs_table(view: CostsView) -> Iterator[RenderableType]:
    """What ``omfs history --costs`` prints."""
    if not view["costs"]:
        yield cell("no job was preempted or resumed in that time")
        return
    numbers = ("took", "moving", "moved", "lost")
    made = table("", ("when", "job", "user", "account", "method", "what", *numbers), numbers)
    for row in view["costs"]:
        made.add_row(
            when(row["time"]),
            cell(row["job"]),
            cell(row["user"]),
            cell(row["account"]),
            cell(row["method"]),
            "preempted" if row["direction"] == OUT else "resumed",
            span(row["seconds"]) if row["seconds"] else "",
            span(row["moving_seconds"]) if row["moving_seconds"] else "",
            size_text(row["bytes"]) if row["bytes"] else "",
            span(row["lost_seconds"]) if row["lost_seconds"] else "",
        )
    yield made


def history_table(view: HistoryView) -> Iterator[RenderableType]:
    """What ``omfs history`` prints."""
    if not view["preemptions"]:
        yield cell("no job was preempted in that time")
        return
    made = table("", ("when", "for job", "account", "why", "victims", "waited", "outcome"), ("waited",))
    for preemption in view["preemptions"]:
        waited = preemption["waited_seconds"]
        made.add_row(
            when(preemption["time"]),
            cell(preemption["preemptor"] + (" (urgent)" if preemption["urgent"] else "")),
            cell(preemption["account"]),
            cell(preemption["reason"]),
            victims_text(preemption["victims"]),
            "" if waited is None else span(waited),
            cell(preemption["outcome"]),
        )
    yield made
