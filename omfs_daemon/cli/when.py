"""``omfs when``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.terminal.output import cell, print_json, show, table, when
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.daemon.api.bound_chance_view import BoundChanceView
    from omfs_daemon.daemon.api.when_view import BasisView, BlockerView, BoundView, WhenView


def when_jobs_start(
    context: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Waiting jobs: 1234, or 1234_7 of an array; of a list, 1234_[7-9], the first one.", show_default=False
        ),
    ] = None,
    at_limit: Annotated[
        bool, typer.Option("--at-limit", help="As if every job ran to its time limit, as Slurm expects.")
    ] = False,
    realtime: Annotated[
        str, typer.Option(metavar="CLASS", help="Instead: would a job of this real-time class keep its bound?")
    ] = "",
    cpus: Annotated[int, typer.Option(metavar="N", help="Of that job.")] = 0,
    minutes: Annotated[int, typer.Option(metavar="N", help="The time limit of that job.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Say when waiting jobs will start, and with what certainty.

    From predicted run times, in the order in which omfsd lets jobs start. Users see their own jobs, operators all.
    Exit code 1 if there is a job of which no start can be said.
    """
    client = session_of(context).client()
    if bool(jobs) == bool(realtime):
        raise ConfigError("either jobs, or --realtime CLASS with --cpus and --minutes, are needed, and not both")
    if at_limit and realtime:
        raise ConfigError("--at-limit: does not go with --realtime")
    if realtime:
        if cpus < 1 or minutes < 1:
            raise ConfigError("--realtime: --cpus and --minutes must be whole numbers from 1 on")
        chance = client.bound_chance(realtime, cpus, minutes * 60)
        print_json(chance) if as_json else show(*chance_lines(chance))
        return
    if cpus or minutes:
        raise ConfigError("--cpus and --minutes are for --realtime CLASS")
    view = client.when(jobs or [], at_limit)
    print_json(view) if as_json else show(*when_table(view))
    if view["none"]:
        raise typer.Exit(Exit.NO)


def when_table(view: WhenView) -> Iterator[RenderableType]:
    """What ``omfs when`` prints."""
    for job in view["jobs"]:
        yield cell(f"job {job['job']} of {job['user']}: {job['now_reason']}", "bold")
        made = table("", ("", "start"))
        made.add_row("one chance in ten: before", _time(job["p10"]))
        made.add_row("about", _time(job["p50"]))
        made.add_row("nine chances in ten: before", _time(job["p90"]))
        made.add_row("Slurm itself expects", _time(job["slurm_start"]) if job["slurm_start"] else "nothing")
        yield made
        if job["bound"]:
            yield cell(_bound(job["bound"], view["taken"]))
        if job["waits_for"]:
            yield cell("waits for " + ", ".join(_blocker(other) for other in job["waits_for"]))
        yield cell(_basis(job["basis"]))
    for none in view["none"]:
        yield cell(f"job {none['job']}: {none['why']}", "yellow")
        if none["bound"]:
            yield cell(_bound(none["bound"], view["taken"]))


def chance_lines(view: BoundChanceView) -> Iterator[RenderableType]:
    """What ``omfs when --realtime`` prints."""
    size = f"{view['cpus']} CPUs and a time limit of {view['limit'] / 60:g} min"
    yield cell(f"a job of class {view['job_class']} with {size}, submitted now:", "bold")
    bound = f"by {when(view['start_by'])}, within its bound of {view['slowdown_bound']:g}"
    yield cell(f"starts {bound}, with a chance of {view['chance']:.0%} if nobody is preempted for it")
    victims = view["victims"]
    number = "1 job" if victims == 1 else f"{victims:,} jobs"
    others = f"{number} would be, as things are now" if victims else "as things are now, none may be"
    yield cell(f"jobs are preempted for it from {when(view['acts_at'])} on: {others}")


def _time(time: float | None) -> str:
    return "not within 35 days" if time is None else when(time)


def _bound(view: BoundView, taken: float) -> str:
    start_by, acts_at = view["start_by"], view["acts_at"]
    if start_by is None or acts_at is None:
        return "real-time, but without a time limit: nothing is promised"
    if start_by < taken:
        return f"by its bound of {view['slowdown_bound']:g} it should have started at {when(start_by)}: it is late"
    acts = f"since {when(acts_at)}" if acts_at <= taken else f"from {when(acts_at)} on"
    return (
        f"at the latest at {when(start_by)} by its bound of {view['slowdown_bound']:g}: "
        f"jobs are preempted for it {acts}, if there are any that may be (omfs why)"
    )


def _blocker(view: BlockerView) -> str:
    return f"job {view['job']} of {view['user']}" if view["job"] else f"a job of another user with {view['cpus']} CPUs"


def _basis(basis: BasisView) -> str:
    learned = f"{basis['samples']} ended jobs that are alike ({basis['key']})" if basis["samples"] else "its limit"
    held = basis["p90_held"]
    record = f"{held:.0%} of {basis['scored']:,} starts" if held is not None else "too few starts yet to say how often"
    text = f"its own run time from {learned}, by {basis['predictor']}; the third time held: {record}"
    return text + (f"; not considered: {', '.join(basis['not_seen'])}" if basis["not_seen"] else "")
