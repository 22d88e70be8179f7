"""``omfs exempt`` and ``omfs release``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from omfs_daemon.daemon.api.exempt_view import ExemptView
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import cell, clean, print_json, show, table, when
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_from_now

_WHO = typer.Argument(metavar="JOB|USER|ACCOUNT", help="A job, or all jobs of a user or account (user=X, account=X).")

app = typer.Typer(
    cls=FaultLine,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Exempt jobs from being preempted: single ones, or all of a user or an account. For operators; audited.",
)


@app.command("add", epilog="Example: omfs exempt add 1234, or omfs exempt add bio --until 2d")
def add_exemption(
    context: typer.Context,
    name: Annotated[str, _WHO],
    until: Annotated[
        str | None, typer.Option(help="For so long (30m, 12h, 7d), or until a time (2026-03-01, 2026-03-01T12:00).")
    ] = None,
) -> None:
    """Never preempt a job, or jobs of a user or an account."""
    end = None if until is None else seconds_from_now(until, time.time())
    print(clean(session_of(context).client().exempt(name, end)["done"]))


@app.command("remove", epilog="Example: omfs exempt remove bio")
def end_exemption(context: typer.Context, name: Annotated[str, _WHO]) -> None:
    """End an exemption."""
    print(clean(session_of(context).client().end_exemption(name)["done"]))


@app.command("list", epilog="Example: omfs exempt list")
def list_exemptions(context: typer.Context, as_json: AsJson = False) -> None:
    """List the exemptions in force."""
    view = session_of(context).client().exemptions()
    print_json(view) if as_json else _show(view)


def _show(view: ExemptView) -> None:
    made = table("Never preempted", ("what", "name", "until", "by"))
    for one in view["exemptions"]:
        until = when(one["until"]) if one["until"] is not None else "it is removed"
        made.add_row(cell(one["kind"]), cell(one["name"]), until, cell(one["by"]))
    show(made) if view["exemptions"] else print("no job is exempted")


def release_job(
    context: typer.Context, job: Annotated[str, typer.Argument(help="As squeue shows it: 1234, 15_3, 15_[3-5].")]
) -> None:
    """Let a held job go, whatever rule holds it.

    It is not held again while it waits. For operators; audited.
    """
    print(clean(session_of(context).client().release(job)["done"]))
