"""What was fitted, as people take it on: into the configuration, and into the simulator. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import NamedTuple

from omfs_daemon.cluster.methods import Method, Pace
from omfs_daemon.daemon.fitting import BACK, STOP, Fit, Way
from omfs_daemon.simulate.costs import by_size

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
