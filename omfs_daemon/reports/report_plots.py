"""The plots of a report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.reports.csv_files import printable
from omfs_daemon.reports.log_holes import LogHole
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.month_figures import hours_of_week, month_rows
from omfs_daemon.simulate.results import plot_style
from omfs_daemon.simulate.results.timeline import Steps, means, steps

HOUR, DAY = 3600.0, 86400.0

_LAYERS = (
    ("used", plot_style.SKY, "used"),
    ("kept_for_large", plot_style.RED, "idle: kept for a large job"),
    ("does_not_fit", plot_style.ORANGE, "idle: no waiting job fits, or not known why"),
    ("limited", plot_style.PURPLE, "idle: held back by limits"),
    ("dependent", plot_style.YELLOW, "idle: only held or dependent jobs"),
    ("nobody_waits", plot_style.GRAY, "idle: nobody waited"),
    ("down", plot_style.DARK, "down or reserved"),
)
_MOST_BINS = 366


class ReportPlot(NamedTuple):
    """Beside the page as ``name.png`` and ``name.svg``."""

    name: str
    title: str


def draw_report(out: Path, report: LogReport, holes: Sequence[LogHole]) -> list[ReportPlot]:
    """All plots, into a directory that exists; ConfigError if they cannot be written."""
    plots = []
    with matplotlib.rc_context(plot_style.style()):
        drawn = [
            (ReportPlot("idle", "Where the cores were"), _idle(report)),
            (ReportPlot("week", "Use by the hour of the week"), _week(report)),
        ]
        if len(report.months()[0]) > 1:
            drawn.append((ReportPlot("months", "Large jobs and idle cores by month"), _months(report)))
        if holes:
            # That of most idle core hours is often of a job that was held, for which nobody had to wait.
            most = max(holes, key=lambda hole: hole.filled.core_hours)
            drawn.append((ReportPlot("hole", f"The hole before job {most.job_id}"), _hole(most)))
        for plot, made in drawn:
            plot_style.write_figure(made, out, plot.name)
            plots.append(plot)
    return plots


def period_words(report: LogReport) -> str:
    """``1 March 2012 to 31 March 2012``: the days of the report's zone."""
    first, last = (
        datetime.fromtimestamp(time, UTC).astimezone(report.zone)
        for time in (report.begin, max(report.begin, report.end - 1))
    )
    return " to ".join(dict.fromkeys(f"{day.day} {day:%B %Y}" for day in (first, last)))


def _idle(report: LogReport) -> Figure:
    use, span = report.use, report.end - report.begin
    step = DAY if span > 6 * DAY else max(span / 96, 1.0)
    step *= max(1.0, np.ceil(span / step / _MOST_BINS))
    edges = np.append(np.arange(report.begin, report.end, step), report.end)
    parts = {"used": use.used, "down": use.down, **use.heaps}
    # Of jobs that all took no time, or never ran, no core is known: then the layers and the legend are empty.
    layers = [layer for layer in _LAYERS if parts[layer[0]].any()]
    values = [use.means(parts[name], edges) for name, _, _ in layers]
    figure = plot_style.figure(10.0, 4.6)
    axes = figure.subplots()
    days = _dates(edges, report.zone)
    plot_style.stacked(axes, days, values, [color for _, color, _ in layers], [label for _, _, label in layers])
    axes.set_xlim(days[0], days[-1])
    axes.set_ylabel("cores" if step <= DAY else f"cores, means of {step / DAY:.0f} days")
    _thousands(axes)
    _date_axis(axes)
    handles, shown = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], shown[::-1], loc="outside lower center", ncols=3, fontsize=9)
    axes.set_title(f"Where the cores were, {period_words(report)}")
    return figure


def _months(report: LogReport) -> Figure:
    rows = list(month_rows(report))
    names = [str(row[0]) for row in rows]
    large, idle, available = (np.array([float(row[at] or 0) for row in rows]) for at in (2, 7, 5))
    figure = plot_style.figure(10.0, 3.8)
    axes = figure.subplots()
    places = np.arange(len(names))
    axes.bar(places, large, color=plot_style.BLUE, width=0.7, label=f"jobs of more than {report.large:,} cores")
    axes.set_ylabel("large jobs submitted")
    _thousands(axes)
    axes.set_xticks(places, names, rotation=45 if len(names) > 8 else 0, ha="right" if len(names) > 8 else "center")
    other = axes.twinx()
    share = 100 * np.divide(idle, available, out=np.zeros_like(idle), where=available > 0)
    other.plot(places, share, color=plot_style.ORANGE, marker="o", linewidth=2, label="idle cores, % of the machine")
    other.set_ylim(0, max(5.0, float(share.max()) * 1.15))
    other.set_ylabel("idle cores, %")
    other.spines["right"].set_visible(True)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    axes.set_title("Large jobs and idle cores by month")
    return figure


def _week(report: LogReport) -> Figure:
    shares = np.array([np.nan if share is None else 100 * share for share in hours_of_week(report)]).reshape(7, 24)
    figure = plot_style.figure(10.0, 3.2)
    axes = figure.subplots()
    image = axes.imshow(shares, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    axes.set_yticks(range(7), ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    axes.set_xticks(range(0, 24, 3), [f"{hour}:00" for hour in range(0, 24, 3)])
    figure.colorbar(image, ax=axes, label="cores used, %")
    axes.set_title("Use by the hour of the week")
    return figure


def _hole(hole: LogHole) -> Figure:
    """Idle cores up to the start of the job, and what would have been put there; means of equal bins."""
    filled = hole.filled
    profile, queue = filled.profile, filled.queue
    unit = plot_style.time_unit(filled.start - float(profile.time[0]))
    edges = plot_style.bins(float(profile.time[0]), filled.start, _MOST_BINS)
    free = np.append(profile.free, 0).astype(np.float64)
    idle = means(Steps(np.append(profile.time, filled.start), free), edges)
    good = filled.accepted
    begins, cores = filled.first_fit[good], queue.cores[good].astype(np.float64)
    put = means(steps(begins, begins + queue.length[good], cores), edges)
    since = (edges - filled.start) / unit.seconds
    figure = plot_style.figure(10.0, 3.8)
    axes = figure.subplots()
    axes.stairs(idle, since, fill=True, color=plot_style.GRAY, label="idle cores")
    axes.stairs(put, since, fill=True, color=plot_style.GREEN, label="with jobs that would have ended in time")
    axes.axhline(hole.cores, color=plot_style.RED, linestyle="--", label=f"the job's {hole.cores:,} cores")
    axes.set_xlim(since[0], since[-1])
    axes.set_ylim(0, 1.08 * max(hole.cores, float(idle.max())))
    axes.set_xlabel(f"{unit.name} before its start")
    axes.set_ylabel("cores")
    _thousands(axes)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    # A job's number is text of the log, and not a formula.
    fit = f"{int(good.sum()):,} of {len(queue.job_id):,} jobs fit"
    axes.set_title(f"The hole before job {printable(hole.job_id)}: {fit}")
    return figure


def _dates(times: Floats, zone: tzinfo | None) -> Floats:
    """In matplotlib's days; all with the offset at the first time, so that bins stay equal."""
    first = datetime.fromtimestamp(float(times[0]), UTC).astimezone(zone)
    offset = first.utcoffset()
    return (times + (offset.total_seconds() if offset else 0.0)) / DAY


def _date_axis(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    make_locator: Any = AutoDateLocator  # without types
    make_formatter: Any = ConciseDateFormatter
    locator = make_locator(minticks=4, maxticks=10)
    axes.xaxis.set_major_locator(locator)
    plain = {"zero_formats": ["", "%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M"], "show_offset": False}
    formats = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"]
    axes.xaxis.set_major_formatter(make_formatter(locator, formats=formats, **plain))


def _thousands(axes: Axes) -> None:
    from matplotlib.ticker import StrMethodFormatter

    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
