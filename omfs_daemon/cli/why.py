"""``omfs why``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.terminal.output import cell, print_json, show, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from omfs_daemon.daemon.api.realtime_view import CheapSetView
    from omfs_daemon.daemon.api.why_view import MethodOptionView, WhyView


def why(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            help="A job as Slurm shows it: 1234, 1234_7 of an array (of a list, 1234_[7-9], the first one), 1234+1 of "
            "a heterogeneous one; or a raw job id."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain why a job waits or runs, and show its history.

    Who preempted it, for whom, by which rule. Users see their own jobs, operators all.
    """
    view = session_of(context).client().why(job)
    print_json(view) if as_json else show(*why_table(view))


def why_table(view: WhyView) -> Iterator[RenderableType]:
    """What ``omfs why`` prints."""
    yield cell(
        f"job {view['job']} of {view['user']} in {view['account']}, class {view['class']}, {view['state']}", "bold"
    )
    yield cell(view["now"])
    if view.get("parts"):
        yield cell(f"one heterogeneous job: {'; '.join(view['parts'])}")
    if view.get("start"):
        yield cell(view["start"])
    if view["realtime"]:
        yield cell(view["realtime"]["text"])
        if view["realtime"]["sets"]:
            yield _sets(view["realtime"]["sets"])
    if view["methods"]:
        yield _methods(view["methods"])
    if view["events"]:
        of_several = len({event["job"] for event in view["events"]}) > 1
        events = table("", ("when", *(("job",) if of_several else ()), "event", "what"))
        for event in view["events"]:
            job = (cell(event["job"]),) if of_several else ()
            events.add_row(when(event["time"]), *job, cell(event["event"]), cell(event["text"]))
        yield events


def _sets(sets: Iterable[CheapSetView]) -> Table:
    numbers = ("CPUs", "slowdown", "S", "C", "T", "cost")
    made = table("The cheapest jobs to preempt for it: CPUs * S * C * T", ("set", "job", "method", *numbers), numbers)
    for number, one in enumerate(sets, start=1):
        for victim in one["victims"]:
            factors = (victim["slowdown_factor"], victim["checkpoint_factor"], victim["remaining_factor"])
            figures = (victim["cpus"], victim["slowdown"], *factors, victim["cost"])
            job = cell(victim["job"] or "of another user")
            made.add_row(str(number), job, cell(victim["method"]), *(f"{value:g}" for value in figures))
    return made


def _methods(methods: Iterable[MethodOptionView]) -> Table:
    numbers = ("to preempt", "to resume", "work lost")
    made = table("How it can be preempted", ("method", *numbers, "why not now"), numbers)
    for method in methods:
        seconds = (method["preempt_seconds"], method["resume_seconds"], method["lost_seconds"])
        made.add_row(cell(method["method"]), *(span(value) for value in seconds), cell(method["why_not"], "yellow"))
    return made
