"""Plots of Nickolay et al. (2021): Figures 3 to 7, what settings do, and the distance from the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES
from omfs_daemon.simulate.experiments.nickolay2021.against_optimum import OptimumRow
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_cases import (
    BASELINE,
    COMPARED,
    JIT,
    PERCENTAGES,
    pooled,
)
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_rows import (
    Results,
    SettingRow,
    draws_of,
    mean_of_draws,
    setting_rows,
    weeks_in,
)
from omfs_daemon.simulate.results import plot_style
from omfs_daemon.simulate.results.realtime_figures import spreading

_COLORS = (plot_style.GRAY, plot_style.BLUE, plot_style.ORANGE, plot_style.GREEN)
_WIDTH = 0.18


class NickolayPlots(NamedTuple):
    """File names without their ending: by week and category (all: the first), twice by week, and of the optimum."""

    boxes: Mapping[tuple[str, str], str]
    costs: Mapping[str, str]
    settings: Mapping[str, str]
    optimum: str | None


def draw_nickolay2021(out: Path, results: Results, optimum: Sequence[OptimumRow]) -> NickolayPlots:
    """Write them all, as PNG and SVG; ConfigError if that fails."""
    boxes, costs, settings = {}, {}, {}
    proven = [row for row in optimum if row.status == "optimal"]
    swept = list(setting_rows(results))
    with matplotlib.rc_context(plot_style.style()):
        for week in weeks_in(results):
            for number, name in ((None, "all"), *enumerate(CATEGORIES)):
                boxes[week, name] = f"{week}-{name}"
                plot_style.write_figure(_boxes(results, week, number, name), out, boxes[week, name])
            costs[week] = f"{week}-cost"
            plot_style.write_figure(_cost_to_others(results, week), out, costs[week])
            if rows := [row for row in swept if row.workload == week]:
                settings[week] = f"{week}-settings"
                plot_style.write_figure(_settings(rows), out, settings[week])
        if proven:
            plot_style.write_figure(_distances(proven), out, "optimum")
    return NickolayPlots(boxes, costs, settings, "optimum" if proven else None)


def _cost_to_others(results: Results, week: str) -> Figure:
    """What a bound gives to real-time jobs, and what it costs the others, with a checkpoint at each stop."""
    made = plot_style.figure(9.0, 3.6)
    grid = made.subplots(1, 2, sharex=True)
    for axes, (realtime, who) in zip(grid, ((True, "real-time jobs"), (False, "batch jobs")), strict=True):
        for variant, label, color, marker in (
            (BASELINE, "without a bound", plot_style.DARK, "o"),
            (JIT, "with a bound (WCJS, JIT)", plot_style.BLUE, "D"),
        ):
            means = [
                [mean_of_draws([one], realtime) for one in draws_of(results, week, variant, percent)]
                for percent in PERCENTAGES
            ]
            middle = [float(np.nanmean(of)) for of in means]
            axes.plot(PERCENTAGES, middle, marker, linestyle="-", color=color, label=label)
            least, most = ([float(end(of)) for of in means] for end in (np.nanmin, np.nanmax))
            axes.fill_between(PERCENTAGES, least, most, color=color, alpha=0.15, linewidth=0)
        axes.set_title(f"{who}: mean bounded slowdown")
        axes.set_xticks(PERCENTAGES, [f"{percent} %" for percent in PERCENTAGES])
        axes.set_xlabel("share of real-time jobs")
        axes.set_ylim(bottom=1.0)
        axes.grid(axis="y", alpha=0.3)
    made.suptitle(f"{week}: mean of all draws, and the least and the greatest", x=0.01, horizontalalignment="left")
    made.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return made


def _boxes(results: Results, week: str, category: int | None, name: str) -> Figure:
    """As Figures 3 to 7: bounded slowdown above, turnaround below, real-time jobs left, batch jobs right."""
    made = plot_style.figure(10.0, 6.5)
    grid = made.subplots(2, 2, sharex=True)
    for column, (realtime, who) in enumerate(((True, "real-time jobs"), (False, "batch jobs"))):
        for row, (what, unit) in enumerate((("bounded slowdown", 1.0), ("turnaround, h", HOUR))):
            axes = grid[row][column]
            for at, variant in enumerate(COMPARED):
                values = [
                    pooled(draws_of(results, week, variant, percent), realtime, category)[row] / unit
                    for percent in PERCENTAGES
                ]
                _draw_boxes(axes, values, (at - 1.5) * (_WIDTH + 0.03), _COLORS[at])
            axes.set_title(f"{who}: {what}")
            axes.set_xticks(range(len(PERCENTAGES)), [f"{percent} %" for percent in PERCENTAGES])
            axes.set_xlim(-0.55, len(PERCENTAGES) - 0.45)
            axes.grid(axis="y", alpha=0.3)
            _limit(axes, 1.0 if row == 0 else 0.0)
    for axes in grid[1]:
        axes.set_xlabel("share of real-time jobs")
    title = "all jobs" if category is None else f"{name} jobs"
    made.suptitle(f"{week}, {title}: 5, 25, 50, 75, 95 % and mean of all draws", x=0.01, horizontalalignment="left")
    handles = [Patch(color=color, label=variant.title) for color, variant in zip(_COLORS, COMPARED, strict=True)]
    made.legend(handles=handles, loc="outside lower center", ncols=len(COMPARED))
    return made


def _draw_boxes(axes: Axes, values: Sequence[Floats], shift: float, color: str) -> None:
    known = [(place, spreading(one)) for place, one in enumerate(values) if len(one)]
    stats = [
        {"med": of.median, "q1": of.p25, "q3": of.p75, "whislo": of.p5, "whishi": of.p95, "mean": of.mean, "fliers": []}
        for _, of in known
    ]
    axes.bxp(
        stats,
        positions=[place + shift for place, _ in known],
        widths=_WIDTH,
        showfliers=False,
        showmeans=True,
        patch_artist=True,
        boxprops={"facecolor": color, "edgecolor": plot_style.DARK, "linewidth": 0.7},
        medianprops={"color": "black", "linewidth": 1.4},
        whiskerprops={"color": plot_style.DARK, "linewidth": 0.8},
        capprops={"color": plot_style.DARK, "linewidth": 0.8},
        meanprops={"marker": "o", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 4},
        manage_ticks=False,
    )


def _limit(axes: Axes, bottom: float) -> None:
    """Logarithmic where the values are far apart."""
    axes.set_ylim(bottom=bottom)
    if bottom > 0 and axes.get_ylim()[1] > 12 * bottom:
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.93 * bottom)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")


def _settings(rows: Sequence[SettingRow]) -> Figure:
    """What a setting does to real-time and to batch jobs."""
    made = plot_style.figure(10.0, 4.5)
    first = rows[0]
    places = np.arange(len(rows))[::-1]
    for axes, (what, title) in zip(
        made.subplots(1, 2, sharey=True),
        (("realtime_mean_bsd", "real-time jobs"), ("batch_mean_bsd", "batch jobs")),
        strict=True,
    ):
        values = [getattr(row, what) for row in rows]
        axes.barh(places, values, color=[plot_style.BLUE, *(plot_style.SKY for _ in rows[1:])], height=0.7)
        axes.axvline(getattr(first, what), color=plot_style.DARK, linewidth=0.8, linestyle=":")
        axes.set_yticks(places, [row.setting for row in rows])
        axes.set_xlim(left=1.0)
        axes.set_title(f"{title}: mean bounded slowdown")
    made.suptitle(f"{first.workload}: one setting changed, 10 % real-time, JIT", x=0.01, horizontalalignment="left")
    return made


def _distances(rows: Sequence[OptimumRow]) -> Figure:
    """Each log whose optimum is proven: mean slowdowns beside those of the optimum."""
    made = plot_style.figure(9.0, 4.2)
    for axes, who in zip(made.subplots(1, 2), ("batch", "realtime"), strict=True):
        best = [getattr(row, f"optimum_{who}") for row in rows]
        for prefix, color, marker in (("wcjs", plot_style.RED, "o"), ("replan", plot_style.BLUE, "D")):
            values = np.array([getattr(row, f"{prefix}_{who}") for row in rows])
            if not np.isnan(values).all():
                axes.plot(best, values, marker, color=color, fillstyle="none", label=prefix)
        # Real-time optima lie between 1 and 1.2, so each axis has its own range.
        axes.axline((1.0, 1.0), slope=1.0, color=plot_style.DARK, linewidth=0.8, linestyle=":")
        axes.set_xlabel("optimum in hindsight")
        axes.set_title(f"mean slowdown of {'real-time' if who == 'realtime' else 'batch'} jobs")
    made.axes[0].set_ylabel("policy")
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return made
