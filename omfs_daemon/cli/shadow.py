"""``omfs shadow``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.terminal.output import cell, print_json, show, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.daemon.api.shadow_view import ShadowAccountView, ShadowView

_MEANING = """\
earlier: jobs that would have started earlier; waiting: likewise, and they wait still; gone: likewise, and they left the
queue first. At least, at most: the time won, added up. Each decision is judged alone, on the cluster as it was: what a
preempted job waits until it runs again, and what follows from a changed cluster, is not in these figures."""


def shadow(
    context: typer.Context,
    since: Annotated[
        str, typer.Option(help="The earliest time: 30m, 6h or 2d ago, or a time such as 2026-03-01T14:00.")
    ] = "7d",
    as_json: AsJson = False,
) -> None:
    """Show what omfsd would have done in a dry run, by account and class.

    Which jobs would have started earlier, and by how much at least and at most; which jobs would have been preempted or
    held. For operators.
    """
    view = session_of(context).client().shadow(seconds_since_epoch(since, time.time()))
    print_json(view) if as_json else show(*shadow_table(view))


def shadow_table(view: ShadowView) -> Iterator[RenderableType]:
    """What ``omfs shadow`` prints."""
    watched = span(view["watched_seconds"])
    yield cell(f"Dry run since {when(view['since'])}: {watched} were watched")
    if not view["accounts"]:
        yield cell("omfsd would have preempted and held no job in that time")
        return
    numbers = ("earlier", "waiting", "gone", "at least", "at most", "held")
    made = table("", ("account", "class", *numbers[:5], "preempted", "held"), numbers)
    for row in view["accounts"]:
        has_gain = row["earlier"] or row["waiting"]
        made.add_row(
            cell(row["account"]),
            cell(row["job_class"]),
            str(row["earlier"]),
            str(row["waiting"]),
            str(row["gone"]),
            span(row["least_seconds"]) if has_gain else "",
            span(row["most_seconds"]) if has_gain else "",
            cell("; ".join(_preempted(row))),
            str(row["held"]),
        )
    yield made
    yield cell(_MEANING)


def _preempted(row: ShadowAccountView) -> Iterator[str]:
    """``requeue: 3 times, 2 jobs, 1.5 h of CPU time lost``."""
    for found in row["preempted"]:
        lost = f", {span(found['lost_cpu_seconds'])} of CPU time lost" if found["lost_cpu_seconds"] else ""
        yield f"{found['method']}: {found['times']} times, {found['jobs']} jobs{lost}"
