"""The busiest stretch of preemptions, job by job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from omfs_daemon.simulate.results import plot_style as canvas
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints

_FEW, _STOPS = 6, 20
_NEAR = 60.0
_ROWS = 30
_COLOURS = {Use.WORK: canvas.BLUE, Use.LOST: canvas.PURPLE, Use.STOP: canvas.ORANGE, Use.RESUME: canvas.GREEN}
_NAMES = {Use.WORK: "work", Use.LOST: "lost work", Use.STOP: "being stopped", Use.RESUME: "being brought back"}


class Stops(NamedTuple):
    """One entry a stop, by time: the job let go at ``left`` and held CPUs again at ``back``."""

    job: Ints
    left: Floats
    back: Floats


def gantt(outcome: Outcome, stops: Stops) -> Figure:
    """Those of the stops (at least one) that lie closest together: victims, and jobs that started as they let go."""
    stops = _densest(stops)
    rows = _rows(outcome, stops)
    first, last = _window(outcome, stops)
    unit = canvas.time_unit(last - first)
    figure = canvas.figure(10.0, 1.8 + 0.24 * len(rows))
    axes = figure.add_subplot()
    for job, left, back in zip(*stops, strict=True):
        away = ((left - first) / unit.seconds, (back - first) / unit.seconds)
        axes.plot(away, [np.flatnonzero(rows == job)[0]] * 2, color=canvas.DARK, linewidth=1)
    _bars(axes, outcome, rows, first, unit.seconds)
    axes.set_xlim(0, (last - first) / unit.seconds)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [_label(outcome, int(job)) for job in rows], fontsize=8)
    for tick, job in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(canvas.RED if outcome.workload.urgent[job] else "black")
    axes.set_xlabel(f"{unit.name} since day {first / 86400:.3f} of the workload")
    axes.set_title(f"Preemptions: {outcome.workload.name} under {outcome.policy}; thin line: stopped")
    uses = np.unique(outcome.segments.use[np.isin(outcome.segments.job, rows)]).tolist()
    handles = [Patch(color=_COLOURS[use], label=_NAMES[use]) for use in uses]
    if outcome.workload.urgent[rows].any():
        handles.append(Patch(color=canvas.RED, label="work of an urgent job"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def stops_of(outcome: Outcome) -> Stops:
    """Where a job has a stretch, then a gap, then another stretch."""
    stretches = outcome.segments
    order = np.lexsort((stretches.end, stretches.begin, stretches.job))
    job, begin, end = stretches.job[order], stretches.begin[order], stretches.end[order]
    gap = np.flatnonzero((job[1:] == job[:-1]) & (begin[1:] > end[:-1]))
    gap = gap[np.argsort(end[gap], kind="stable")]
    return Stops(job[gap], end[gap], begin[gap + 1])


def _densest(stops: Stops) -> Stops:
    """Some stops in a row with the least time between first and last, and all others of that time, up to a page."""
    count = min(_FEW, len(stops.job))
    begin = int(np.argmin(stops.left[count - 1 :] - stops.left[: len(stops.left) - count + 1]))
    left = stops.left
    near = np.flatnonzero((left >= left[begin] - _NEAR) & (left <= left[begin + count - 1] + _NEAR))[:_STOPS]
    return Stops(stops.job[near], left[near], stops.back[near])


def _rows(outcome: Outcome, stops: Stops) -> Ints:
    """The jobs to show, by first start: victims, and those that started the moment one of them let go."""
    helped = np.flatnonzero(np.isin(outcome.start, stops.left))
    urgent_first = helped[np.argsort(~outcome.workload.urgent[helped], kind="stable")]
    victims = np.unique(stops.job)
    others = urgent_first[~np.isin(urgent_first, victims)][: _ROWS - len(victims)]
    chosen = np.concatenate((victims, others))
    return chosen[np.argsort(outcome.start[chosen], kind="stable")]


def _window(outcome: Outcome, stops: Stops) -> tuple[float, float]:
    """Seconds: from a little before the first stop until most victims are back."""
    begin, end = float(stops.left.min()), float(np.quantile(stops.back, 0.9))
    margin = 0.15 * max(end - begin, 1.0)
    return max(begin - margin, 0.0), end + margin


def _bars(axes: Axes, outcome: Outcome, rows: Ints, first: float, unit: float) -> None:
    stretches, urgent = outcome.segments, outcome.workload.urgent
    for row, job in enumerate(rows.tolist()):
        for at in np.flatnonzero(stretches.job == job):
            use = Use(stretches.use[at])
            colour = canvas.RED if urgent[job] and use is Use.WORK else _COLOURS[use]
            begin, width = (stretches.begin[at] - first) / unit, (stretches.end[at] - stretches.begin[at]) / unit
            axes.barh(row, width, left=begin, height=0.7, color=colour, linewidth=0)


def _label(outcome: Outcome, job: int) -> str:
    workload = outcome.workload
    return f"{workload.job_id[job]} ({workload.cpus[job]} CPUs)"
