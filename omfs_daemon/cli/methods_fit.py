"""``omfs methods fit``: measured costs as settings for the configuration and options for the simulator.

With ``--pid``: which methods fit a running program.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from omfs_daemon.cli.program_fit import program_fit_as_json, program_fit_table, shapes_of
from omfs_daemon.cluster.preempt_methods import IN, OUT, MethodSpeed, MethodTraits
from omfs_daemon.config.build import rules
from omfs_daemon.daemon.api.history_view import costs_from_views
from omfs_daemon.daemon.api.operations import LONGEST_HISTORY
from omfs_daemon.preemption.cost_fit import Fit, MethodDirection, fit, points
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.simulate.engine.preemption_costs import by_size
from omfs_daemon.simulate.workload.workload import PreemptMode
from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.terminal.output import cell, print_json, show, speed_text, table
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

if TYPE_CHECKING:
    from rich.console import RenderableType

UNLIMITED_RATE = 1e15
"""Bytes per second that stand for "the size does not matter": the configuration has no infinite numbers."""


class FittedMethod(NamedTuple):
    """A method and what was fitted for it."""

    traits: MethodTraits
    speed: MethodSpeed
    preempt: Fit | None
    resume: Fit | None

    @property
    def directions(self) -> tuple[tuple[str, Fit | None], ...]:
        return ("preempt", self.preempt), ("resume", self.resume)


def methods_fit(
    context: typer.Context,
    since: Annotated[
        str, typer.Option(help="The earliest time: 12h or 30d ago, or a time such as 2026-03-01T14:00.")
    ] = "90d",
    pid: Annotated[
        int | None, typer.Option(help="Instead: a running program on this node, and what each method makes of it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the speed of each method to what its preemptions cost: seconds = fixed + bytes / rate.

    Prints the settings for the configuration, and the options that make `omfs simulate` use them.
    Exit code 1 if there is no data. With --pid, prints what a program and its children have open, share, or wait for,
    and whether it survives a preemption by each method, as found by trial (docs/methods.md); needs no daemon.
    """
    if pid is not None:
        found_shapes = shapes_of(pid)
        print_json(program_fit_as_json(pid, found_shapes)) if as_json else show(*program_fit_table(pid, found_shapes))
        return
    session = session_of(context)
    rows = costs_from_views(session.client().costs(LONGEST_HISTORY, seconds_since_epoch(since, time.time()))["costs"])
    fits = {direction: made for direction, some in points(rows).items() if (made := fit(some)) is not None}
    speeds = rules(session.config(), ()).speeds
    found = fitted(fits, {name: (method.traits, speeds[name]) for name, method in installed().items()})
    print_json(fits_as_json(found)) if as_json else show(*fits_table(found))
    if not found:
        raise typer.Exit(Exit.NO)


def fitted(
    fits: Mapping[MethodDirection, Fit], methods: Mapping[str, tuple[MethodTraits, MethodSpeed]]
) -> list[FittedMethod]:
    """In the order of ``methods``; without those that have no row or are no longer installed."""
    found = []
    for name, (traits, speed) in methods.items():
        preempt, resume = fits.get(MethodDirection(name, OUT)), fits.get(MethodDirection(name, IN))
        if preempt is not None or resume is not None:
            found.append(FittedMethod(traits, speed, preempt, resume))
    return found


def toml(found: Sequence[FittedMethod]) -> str:
    """``[methods.NAME]`` tables; what could not be fitted is a comment."""
    return "\n".join(line for one in found for line in _table(one))


def _table(one: FittedMethod) -> Iterator[str]:
    yield f"[methods.{one.traits.name}]"
    if one.preempt is not None:
        yield from _settings(one.preempt, "preempt", one.speed.preempt_rate)
    if one.resume is not None:
        yield from _settings(one.resume, "resume", one.speed.resume_rate)


def _settings(fit: Fit, direction: str, rate_before: float) -> Iterator[str]:
    if fit.is_line:
        yield f"{direction}_seconds = {_number(fit.fixed)}"
        rate = fit.rate if isfinite(fit.rate) else UNLIMITED_RATE
        remark = "" if isfinite(fit.rate) else "  # the size does not matter"
        yield f"{direction}_bytes_per_second = {_number(rate)}{remark}"
    elif not isfinite(rate_before):
        yield f"{direction}_seconds = {_number(fit.median)}  # median of {fit.rows}: {fit.why_not}"
    else:
        # With the rate that is in force, the median would count the transfer twice.
        yield f"# {direction}: median {_number(fit.median)} s of {fit.rows} rows; nothing fitted: {fit.why_not}"


def _number(value: float) -> str:
    """Three digits, as a float of TOML."""
    text = f"{value:.3g}"
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def simulator_options(one: FittedMethod) -> list[str]:
    """The options of ``omfs simulate`` for preemption by this method."""
    mode = PreemptMode.of(one.traits).name.lower()
    if not one.traits.keeps_work:
        return ["--method", mode]
    options = ["--method", mode]
    for made, direction in ((one.preempt, "out"), (one.resume, "in")):
        if made is not None:
            options += [f"--{mode}-{direction}", _cost(made)]
    return options


def _cost(fit: Fit) -> str:
    return by_size(fit.fixed, fit.rate) if fit.is_line else f"{fit.median:.4g}:{fit.median:.4g}"


def fits_table(found: Sequence[FittedMethod]) -> Iterator[RenderableType]:
    """What ``omfs methods fit`` prints."""
    if not found:
        yield cell("nothing to fit: no preemption in that time has a recorded cost")
        return
    columns = ("method", "what", "rows", "median", "fitted", "spread")
    made = table("Durations; half of the rows lie within the spread", columns, ("rows", "median", "spread"))
    for one in found:
        for direction, of in one.directions:
            if of is not None:
                line = speed_text(of.fixed, of.rate if isfinite(of.rate) else None) if of.is_line else of.why_not
                median, spread = f"{of.median:.3g} s", f"{of.spread:.3g} s"
                made.add_row(cell(one.traits.name), direction, str(of.rows), median, cell(line), spread)
    yield made
    yield "For the configuration:"
    yield f"\n{toml(found)}\n"
    yield "For the simulator, one method at a time:"
    for one in found:
        yield f"{one.traits.name}: omfs simulate {' '.join(simulator_options(one))} ..."
    if any(one.traits.launched and one.resume is not None for one in found):
        yield (
            "omfs-run reports a restart without the seconds that Slurm takes to start the job again: add them to"
            " resume_seconds."
        )


def fits_as_json(found: Sequence[FittedMethod]) -> dict[str, object]:
    """What ``omfs methods fit --json`` prints."""
    return {
        "methods": [
            {
                "name": one.traits.name,
                **{direction: None if of is None else _fit_as_json(of) for direction, of in one.directions},
                "simulate": simulator_options(one),
            }
            for one in found
        ],
        "toml": toml(found),
    }


def _fit_as_json(fit: Fit) -> dict[str, object]:
    """``bytes_per_second`` is null where the size does not matter, ``fitted`` null where there is no line."""
    rate = fit.rate if isfinite(fit.rate) else None
    line = {"seconds": fit.fixed, "bytes_per_second": rate} if fit.is_line else None
    return {
        "rows": fit.rows,
        "median_seconds": fit.median,
        "spread_seconds": fit.spread,
        "fitted": line,
        "why_not": fit.why_not,
    }
