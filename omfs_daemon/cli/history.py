"""Commands register in main.py; table beside the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from rich.console import RenderableType
from rich.text import Text
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.output import when
from omfs_daemon.daemon.api.history_view import CostsView
from omfs_daemon.daemon.api.history_view import PastVictimView
from omfs_daemon.terminal.output import size_text
from collections.abc import Iterator
from omfs_daemon.daemon.api.history_view import HistoryView


# -- costs -------------------------------------------------------------------------------------------


def past_victims(victims: Iterable[PastVictimView]) -> Text:
    """One a line."""
    rows = (cell(f"{victim['job']} of {victim['account']} ({_paid(victim)})") for victim in victims)
    return Text("\n").join(rows)


def _paid(victim: PastVictimView) -> str:
    """``dmtcp: 2.1 s, 1.5 GB; back 8.0 s; 3.0 s lost``."""
    moved = [span(victim["stop_seconds"])] if "stop_seconds" in victim else []
    moved += [size_text(victim["bytes"])] if victim.get("bytes") else []
    parts = [", ".join(moved)] if moved else []
    parts += [f"back {span(victim['resume_seconds'])}"] if victim.get("resume_seconds") else []
    parts += [f"{span(victim['lost_seconds'])} lost"] if victim.get("lost_seconds") else []
    return victim["method"] + (": " if parts else "") + "; ".join(parts)


def costs(view: CostsView) -> Iterator[RenderableType]:
    """What ``omfs history --costs`` prints."""
    if not view["costs"]:
        yield Text("no job was stopped or came back in that time")
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
            "stopped" if row["way"] == "out" else "came back",
            span(row["seconds"]) if row["seconds"] else "",
            span(row["moving_seconds"]) if row["moving_seconds"] else "",
            size_text(row["bytes"]) if row["bytes"] else "",
            span(row["lost_seconds"]) if row["lost_seconds"] else "",
        )
    yield made


def history_table(view: HistoryView) -> Iterator[RenderableType]:
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
