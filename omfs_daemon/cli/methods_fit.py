"""What was fitted, as people take it on: into the configuration, and into the simulator. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import NamedTuple
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.preempt_methods import Pace
from omfs_daemon.preemption.cost_fit import BACK
from omfs_daemon.preemption.cost_fit import STOP
from omfs_daemon.preemption.cost_fit import Fit
from omfs_daemon.preemption.cost_fit import Way
from omfs_daemon.simulate.engine.preemption_costs import by_size
from collections.abc import Iterator, Sequence
from rich.console import RenderableType
from rich.text import Text
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.output import pace_text

AT_ONCE = 1e15
"""Bytes per second that stand for "the size does not matter": the configuration knows no infinite numbers."""


class Fitted(NamedTuple):
    """A method and what is known of it."""

    traits: Method
    pace: Pace
    stop: Fit | None
    back: Fit | None


def fitted(fits: Mapping[Way, Fit], methods: Mapping[str, tuple[Method, Pace]]) -> list[Fitted]:
    """By method, in the order of ``methods``; those without any row, or not installed any more, are left out."""
    found = []
    for name, (traits, pace) in methods.items():
        stop, back = fits.get(Way(name, STOP)), fits.get(Way(name, BACK))
        if stop is not None or back is not None:
            found.append(Fitted(traits, pace, stop, back))
    return found


def toml(found: list[Fitted]) -> str:
    """``[methods.NAME]`` tables; what could not be fitted stands there as a remark only."""
    return "\n".join(line for one in found for line in _table(one))


def _table(one: Fitted) -> Iterator[str]:
    yield f"[methods.{one.traits.name}]"
    if one.stop is not None:
        yield from _settings(one.stop, "stop", one.pace.stop_rate)
    if one.back is not None:
        yield from _settings(one.back, "back", one.pace.back_rate)


def _settings(fit: Fit, side: str, rate_before: float) -> Iterator[str]:
    if fit.is_line:
        yield f"{side}_seconds = {_number(fit.fixed)}"
        rate = fit.rate if isfinite(fit.rate) else AT_ONCE
        remark = "" if isfinite(fit.rate) else "  # the size does not matter"
        yield f"{side}_bytes_per_second = {_number(rate)}{remark}"
    elif not isfinite(rate_before):
        yield f"{side}_seconds = {_number(fit.median)}  # median of {fit.rows}: {fit.why_not}"
    else:
        # Beside the rate that is in force, the median would count the moving twice.
        yield f"# {side}: {_number(fit.median)} s in the median of {fit.rows}; nothing fitted: {fit.why_not}"


def _number(value: float) -> str:
    """Three digits, as TOML has floats."""
    text = f"{value:.3g}"
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def simulator(one: Fitted) -> list[str]:
    """The options of ``omfs simulate`` by which jobs are stopped like this."""
    if not one.traits.keeps_work:
        return ["--method", "kill"]
    way = "checkpoint" if one.traits.leaves else "swap"
    words = ["--method", way]
    for fit, side in ((one.stop, "out"), (one.back, "in")):
        if fit is not None:
            words += [f"--{way}-{side}", _cost(fit)]
    return words


def _cost(fit: Fit) -> str:
    return by_size(fit.fixed, fit.rate) if fit.is_line else f"{fit.median:.4g}:{fit.median:.4g}"


# -- fits --------------------------------------------------------------------------------------------


def fits(found: Sequence[Fitted]) -> Iterator[RenderableType]:
    """What ``omfs methods fit`` prints."""
    if not found:
        yield Text("nothing to fit: no stop in that time tells what it has cost")
        return
    columns = ("method", "what", "rows", "in the median", "fitted", "spread")
    made = table(
        "How long it took; half of the rows lie within the spread", columns, ("rows", "in the median", "spread")
    )
    for one in found:
        for what, fit in (("stop", one.stop), ("back", one.back)):
            if fit is not None:
                line = pace_text(fit.fixed, fit.rate if isfinite(fit.rate) else None) if fit.is_line else fit.why_not
                made.add_row(
                    cell(one.traits.name), what, str(fit.rows), f"{fit.median:.3g} s", cell(line), f"{fit.spread:.3g} s"
                )
    yield made
    yield Text("For the configuration:")
    yield Text("\n" + toml(list(found)) + "\n")
    yield Text("For the simulator, one method at a time:")
    for one in found:
        yield Text(f"{one.traits.name}: omfs simulate {' '.join(simulator(one))} ...")
    if any(one.traits.launched and one.back is not None for one in found):
        yield Text(
            "A return by omfs-run is told without the seconds that Slurm takes to start the job again: add them to"
            " back_seconds."
        )


def fits_as_json(found: Sequence[Fitted]) -> dict[str, object]:
    """What ``omfs methods fit --json`` prints."""
    return {
        "methods": [
            {
                "name": one.traits.name,
                "stop": None if one.stop is None else _fit(one.stop),
                "back": None if one.back is None else _fit(one.back),
                "simulate": simulator(one),
            }
            for one in found
        ],
        "toml": toml(list(found)),
    }


def _fit(fit: Fit) -> dict[str, object]:
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
