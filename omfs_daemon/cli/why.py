"""Commands register in main.py; table beside the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from rich.console import RenderableType
from rich.table import Table
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.output import when
from omfs_daemon.daemon.api.why_view import WayView
from omfs_daemon.daemon.api.why_view import WhyView


def why_table(view: WhyView) -> Iterator[RenderableType]:
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
