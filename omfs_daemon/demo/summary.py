"""The end of the demo: who was stopped for whom and why, and what became of every job."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.demo.script import Play


def summary(play: Play) -> Iterator[RenderableType]:
    """Tables, as far as the play came."""
    if play.stops:
        yield _stops(play)
    if play.fates:
        yield _fates(play)


def _stops(play: Play) -> Table:
    made = table("Who was stopped for whom", ("stopped", "how", "for", "because", "which had waited"))
    for stop in play.stops:
        beneficiary = play.name_of(stop["beneficiary"])
        waited = play.waited.get(beneficiary)
        for victim in stop["victims"]:
            made.add_row(
                cell(play.name_of(victim["job"])),
                cell(victim["method"]),
                cell(f"{beneficiary} of {stop['account']}"),
                cell(stop["reason"]),
                "" if waited is None else span(waited),
            )
    return made


def _fates(play: Play) -> Table:
    columns = ("job", "account", "waited", "began its work", "worked", "Slurm says", "its own last line says")
    made = table("What became of every job", columns, ("waited", "worked"))
    for part in play.parts.values():
        fate, waited = play.fates[part.name], play.waited.get(part.name)
        made.add_row(
            cell(part.name),
            cell(part.account),
            "" if waited is None else span(waited),
            "once" if fate.starts == 1 else f"{fate.starts} times",
            f"{fate.steps} of {part.work} s",
            cell(fate.outcome),
            "finished" if fate.finished else "NOT FINISHED",
        )
    return made
