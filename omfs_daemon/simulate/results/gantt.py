"""The busiest period of preemptions, job by job."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.results import plot_style

_FEW, _PREEMPTIONS = 6, 20
_NEAR = 60.0
_ROWS = 30
_COLORS = {
    Use.WORK: plot_style.BLUE,
    Use.LOST: plot_style.PURPLE,
    Use.PREEMPTION: plot_style.ORANGE,
    Use.RESUME: plot_style.GREEN,
    Use.CHECKPOINT: plot_style.SKY,
}
_NAMES = {
    Use.WORK: "work",
    Use.LOST: "lost work",
    Use.PREEMPTION: "being preempted",
    Use.RESUME: "being resumed",
    Use.CHECKPOINT: "writing a periodic checkpoint",
}


class PreemptionSpans(NamedTuple):
    """One entry per preemption, by time: the job freed its CPUs at ``left`` and held CPUs again at ``back``."""

    job: Ints
    left: Floats
    back: Floats


def gantt(outcome: Outcome, preemptions: PreemptionSpans) -> Figure:
    """The preemptions (at least one) closest together in time: victims, and jobs that started on their CPUs."""
    preemptions = _densest(preemptions)
    rows = _rows(outcome, preemptions)
    first, last = _window(outcome, preemptions)
    unit = plot_style.time_unit(last - first)
    figure = plot_style.figure(10.0, 1.8 + 0.24 * len(rows))
    axes = figure.add_subplot()
    for job, left, back in zip(*preemptions, strict=True):
        away = ((left - first) / unit.seconds, (back - first) / unit.seconds)
        axes.plot(away, [np.flatnonzero(rows == job)[0]] * 2, color=plot_style.DARK, linewidth=1)
    _bars(axes, outcome, rows, first, unit.seconds)
    axes.set_xlim(0, (last - first) / unit.seconds)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [_label(outcome, int(job)) for job in rows], fontsize=8)
    for tick, job in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(plot_style.RED if outcome.workload.urgent[job] else "black")
    axes.set_xlabel(f"{unit.name} since day {first / 86400:.3f} of the workload")
    axes.set_title(f"Preemptions: {outcome.workload.name} under {outcome.policy}; thin line: preempted")
    uses = np.unique(outcome.segments.use[np.isin(outcome.segments.job, rows)]).tolist()
    handles = [Patch(color=_COLORS[use], label=_NAMES[use]) for use in uses]
    if outcome.workload.urgent[rows].any():
        handles.append(Patch(color=plot_style.RED, label="work of an urgent job"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def preemptions_of(outcome: Outcome) -> PreemptionSpans:
    """Where a job has a segment, then a gap, then another segment."""
    segments = outcome.segments
    order = np.lexsort((segments.end, segments.begin, segments.job))
    job, begin, end = segments.job[order], segments.begin[order], segments.end[order]
    gap = np.flatnonzero((job[1:] == job[:-1]) & (begin[1:] > end[:-1]))
    gap = gap[np.argsort(end[gap], kind="stable")]
    return PreemptionSpans(job[gap], end[gap], begin[gap + 1])


def _densest(preemptions: PreemptionSpans) -> PreemptionSpans:
    """Consecutive preemptions with the least time between first and last, and all others of that time, up to a page."""
    count = min(_FEW, len(preemptions.job))
    begin = int(np.argmin(preemptions.left[count - 1 :] - preemptions.left[: len(preemptions.left) - count + 1]))
    left = preemptions.left
    near = np.flatnonzero((left >= left[begin] - _NEAR) & (left <= left[begin + count - 1] + _NEAR))[:_PREEMPTIONS]
    return PreemptionSpans(preemptions.job[near], left[near], preemptions.back[near])


def _rows(outcome: Outcome, preemptions: PreemptionSpans) -> Ints:
    """The jobs to show, by first start: victims, and jobs that started when a victim freed its CPUs."""
    helped = np.flatnonzero(np.isin(outcome.start, preemptions.left))
    urgent_first = helped[np.argsort(~outcome.workload.urgent[helped], kind="stable")]
    victims = np.unique(preemptions.job)
    others = urgent_first[~np.isin(urgent_first, victims)][: _ROWS - len(victims)]
    chosen = np.concatenate((victims, others))
    return chosen[np.argsort(outcome.start[chosen], kind="stable")]


def _window(outcome: Outcome, preemptions: PreemptionSpans) -> tuple[float, float]:
    """Seconds: from a little before the first preemption until most victims have resumed."""
    begin, end = float(preemptions.left.min()), float(np.quantile(preemptions.back, 0.9))
    margin = 0.15 * max(end - begin, 1.0)
    return max(begin - margin, 0.0), end + margin


def _bars(axes: Axes, outcome: Outcome, rows: Ints, first: float, unit: float) -> None:
    segments, urgent = outcome.segments, outcome.workload.urgent
    for row, job in enumerate(rows.tolist()):
        for at in np.flatnonzero(segments.job == job):
            use = Use(segments.use[at])
            color = plot_style.RED if urgent[job] and use is Use.WORK else _COLORS[use]
            begin, width = (segments.begin[at] - first) / unit, (segments.end[at] - segments.begin[at]) / unit
            axes.barh(row, width, left=begin, height=0.7, color=color, linewidth=0)


def _label(outcome: Outcome, job: int) -> str:
    workload = outcome.workload
    return f"{workload.job_id[job]} ({workload.cpus[job]} CPUs)"
