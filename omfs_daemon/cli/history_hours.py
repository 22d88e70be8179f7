"""The table of ``omfs history --hours``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from omfs_daemon.terminal.output import cell, span, table, when

if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.daemon.api.idle_hours_view import IdleHoursView, IdleHourView
    from omfs_daemon.daemon.api.wait_hours_view import WaitHoursView, WaitsView

_HOUR = 3600.0
_CAUSES = ("nobody_waits", "does_not_fit", "kept_for_large", "limited", "dependent", "down")


class HourRow(TypedDict):
    """``idle``: None if omfsd did not see why CPUs were idle; ``waits``: by partition and by account."""

    begin: float
    idle: IdleHourView | None
    waits: list[WaitsView]


def hour_rows(idle: IdleHoursView, waits: WaitHoursView, limit: int) -> list[HourRow]:
    """The newest ``limit`` hours of which omfsd knows something, newest first."""
    found = {hour["begin"]: HourRow(begin=hour["begin"], idle=hour, waits=[]) for hour in idle["hours"]}
    for share in waits["waits"]:
        begin = share["begin"]
        found.setdefault(begin, HourRow(begin=begin, idle=None, waits=[]))["waits"].append(share)
    return [found[begin] for begin in sorted(found, reverse=True)[:limit]]


def hours_table(rows: list[HourRow]) -> Iterator[RenderableType]:
    """CPU hours by cause, and the waits of the jobs that started."""
    if not rows:
        yield cell("nothing is known of that time")
        return
    causes = tuple(name.replace("_", " ") for name in _CAUSES)
    numbers = ("started", "mean wait", "longest", *causes)
    made = table("", ("hour from", *numbers), numbers)
    for row in rows:
        waits = [share for share in row["waits"] if share["group"] == "partition"]
        jobs = sum(share["jobs"] for share in waits)
        waited = sum(share["jobs"] * share["mean_wait_seconds"] for share in waits)
        idle = row["idle"]["cpu_seconds"] if row["idle"] else {}
        made.add_row(
            when(row["begin"]),
            str(jobs),
            span(waited / jobs) if jobs else "",
            span(max(share["longest_wait_seconds"] for share in waits)) if waits else "",
            *(f"{idle[name] / _HOUR:,.1f}" if name in idle else "" for name in _CAUSES),
        )
    yield made
