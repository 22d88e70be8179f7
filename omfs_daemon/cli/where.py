"""``omfs where``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.terminal.output import cell, print_json, show, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.cli.batch_script import BatchCommand
    from omfs_daemon.daemon.api.where_view import WhereRowView, WhereView

_SHOWN = 10


def where_to_submit(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT | -- [SBATCH OPTIONS] [SCRIPT]",
            help="The batch script, or what you would type after sbatch.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Say where a job would start first: on which cluster, in which partition, on how many nodes.

    From the #SBATCH lines of a script, SBATCH_ variables, and options, as sbatch reads them. Nothing is submitted, and
    the script is not run. What the options leave open is tried: every cluster, partition, and number of nodes. Exit
    code 1 if it can start nowhere.
    """
    from omfs_daemon.cli.batch_script import batch_command

    command = batch_command(words, os.environ)
    # The name of a script may be no text, which a request must be.
    said = [(_as_text(where), _as_text(word)) for where, word in command.words]
    view = session_of(context).client().where(said)
    if as_json:
        lines = [command.typed(row["options"], row["conf"]) if row["feasible"] else "" for row in view["rows"]]
        rows = [{**row, "command": line} for row, line in zip(view["rows"], lines, strict=True)]
        print_json({**view, "rows": rows})
    else:
        show(*where_table(view, command))
    if not any(row["feasible"] for row in view["rows"]):
        raise typer.Exit(Exit.NO)


def _as_text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")


def where_table(view: WhereView, command: BatchCommand) -> Iterator[RenderableType]:
    """What ``omfs where`` prints."""
    good = [row for row in view["rows"] if row["feasible"]]
    never = [row for row in view["rows"] if not row["feasible"]]
    if good:
        first = good[0]
        yield cell(
            f"It would start first {_place(first)}: about {_time(first['p50'])} "
            f"(nine chances in ten: before {_time(first['p90'])}), and end about {_time(first['end_p50'])}.",
            "bold",
        )
        numbers = ("nodes", "CPUs")
        columns = ("cluster", "partition", *numbers, "starts about", "nine in ten: before", "ends about")
        made = table("", columns, numbers)
        for row in good[:_SHOWN]:
            names = (cell(row["cluster"]), cell(row["partition"]))
            times = (_time(row["p50"]), _time(row["p90"]), _time(row["end_p50"]))
            made.add_row(*names, str(row["nodes"]), str(row["cpus"]), *times)
        yield made
        if len(good) > _SHOWN:
            yield cell(f"and {len(good) - _SHOWN} more: --json has all")
        yield cell(f"To send it there: {command.typed(first['options'], first['conf'])}")
        yield cell(_basis(view, first))
    else:
        yield cell("It can start nowhere:", "bold")
    for row in never if not good else [row for row in never if row["cluster"] not in {one["cluster"] for one in good}]:
        yield cell(f"not {_place(row)}: {row['why_not']}", "yellow")


def _place(row: WhereRowView) -> str:
    partition = f", partition {row['partition']}" if row["partition"] else ""
    return f"on cluster {row['cluster']}{partition}"


def _time(time: float | None) -> str:
    return "not within 35 days" if time is None else when(time)


def _basis(view: WhereView, row: WhereRowView) -> str:
    run = "" if row["run_p50"] is None else f"it is expected to run {span(row['run_p50'])}, "
    learned = f"from {row['samples']} ended jobs that are alike ({row['key']})" if row["samples"] else "its time limit"
    held = view["p90_held"]
    record = f"{held:.0%} of {view['scored']:,} starts" if held is not None else "too few starts yet to say how often"
    text = f"{run}{learned}, by {view['predictor']}; such a second time held: {record}"
    return text + (f"; not considered: {', '.join(view['not_seen'])}" if view["not_seen"] else "")
