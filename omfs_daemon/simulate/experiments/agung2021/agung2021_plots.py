"""Plots of Agung et al. (2021): one for each workload, longer swaps, and how slowdowns are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omfs_daemon.simulate.experiments.agung2021 import published as numbers
from omfs_daemon.simulate.experiments.agung2021.agung2021_cases import (
    ALL,
    BY_SLOWDOWN,
    FACTORS,
    AgungResults,
    Key,
    ReplayKind,
    Results,
)
from omfs_daemon.simulate.results import plot_style
from omfs_daemon.simulate.results.result_rows import SLOWDOWNS


class AgungPlots(NamedTuple):
    """File names without their ending, by workload: all policies; longer swaps, where the paper has them; slowdowns,
    where urgent jobs are late under UJFB."""

    policies: dict[str, str]
    swaps: dict[str, str]
    slowdowns: dict[str, str]


def draw_agung2021(out: Path, found: AgungResults) -> AgungPlots:
    """Write them all, as PNG and SVG; ConfigError if that fails."""
    plots = AgungPlots({}, {}, {})
    with matplotlib.rc_context(plot_style.style()):
        for study in found.studies:
            file = study.name.lower().replace(" ", "-")
            plots.policies[study.name] = f"{file}-policies"
            plot_style.write_figure(_policies(study.name, found.results), out, plots.policies[study.name])
            if study.name in numbers.SLOWER_SWAPS:
                plots.swaps[study.name] = f"{file}-swaps"
                plot_style.write_figure(_swaps(study.name, found.results), out, plots.swaps[study.name])
            if found.results[Key(ReplayKind.TEXT, study.name, "ujfb")].late:
                plots.slowdowns[study.name] = f"{file}-slowdowns"
                plot_style.write_figure(_slowdowns(study.name, found.results), out, plots.slowdowns[study.name])
    return plots


def _policies(workload: str, results: Results) -> Figure:
    """As Figures 10 to 12 and 16: response and slowdown of regular jobs, U_L of urgent ones."""
    made = plot_style.figure(11.0)
    names = ALL
    rows = [results[Key(ReplayKind.TEXT, workload, policy)].row for policy in names]
    theirs = [numbers.THEIR_CODE.get((workload, policy)) for policy in names]
    printed = [numbers.U_L.get((workload, policy)) for policy in names]
    response, slowdown, u_l = made.subplots(1, 3)
    response.set_title("mean response of regular jobs, s")
    _bars(response, names, [row.mean_response for row in rows])
    _marks(response, [given and given.response for given in theirs], "their code", "o")
    slowdown.set_title("mean slowdown of regular jobs")
    _bars(slowdown, names, [row.mean_slowdown for row in rows])
    _marks(slowdown, [given and given.slowdown for given in theirs], "their code", "o")
    u_l.set_title("U_L")
    _bars(u_l, names, [row.U_L for row in rows])
    _marks(u_l, [given and given.u_l for given in theirs], "their code", "o")
    _marks(u_l, [given and given.value for given in printed], "the paper", "D")
    _logarithmic(u_l, 0.9)
    made.suptitle(f"{workload}: bars as the text says", x=0.01, horizontalalignment="left")
    handles = {
        label: handle for axes in made.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        made.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return made


def _bars(axes: Axes, names: Sequence[str], heights: Sequence[float]) -> None:
    axes.bar(range(len(names)), heights, color=plot_style.SKY, width=0.7)
    axes.set_xticks(range(len(names)), names, rotation=30, horizontalalignment="right")


def _marks(axes: Axes, heights: Sequence[float | None], label: str, marker: str) -> None:
    known = [(place, height) for place, height in enumerate(heights) if height is not None]
    if known:
        places, values = zip(*known, strict=True)
        axes.plot(places, values, marker, color=plot_style.RED, fillstyle="none", markersize=8, label=label)


def _logarithmic(axes: Axes, bottom: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=bottom)
    axes.yaxis.set_major_formatter("{x:,g}")


def _swaps(workload: str, results: Results) -> Figure:
    """As Figure 13: everything against what it is with the plain swap times."""
    made = plot_style.figure(9.0)
    factors = (1.0, *FACTORS)
    places = np.arange(3)
    for axes, kind, title in zip(
        made.subplots(1, 2, sharey=True),
        (ReplayKind.TEXT, ReplayKind.THEIRS),
        ("swap-outs together, as the text says", "one after the other, as their code does"),
        strict=True,
    ):
        plain = results[Key(kind, workload, "ujfb")].row
        for place, (factor, color) in enumerate(zip(factors, plot_style.COLORS, strict=False)):
            row = results[Key(kind, workload, "ujfb", factor)].row
            relative = [
                row.mean_response / plain.mean_response,
                row.mean_slowdown / plain.mean_slowdown,
                row.U_L / plain.U_L,
            ]
            axes.bar(places + (place - 1) * 0.25, relative, width=0.25, color=color, label=f"{factor:g}x")
        axes.set_xticks(places, ("mean response", "mean slowdown", "U_L"))
        axes.axhline(1.0, color=plot_style.DARK, linewidth=0.8, linestyle=":")
        axes.set_title(title)
    made.axes[0].set_ylabel("relative to 1x")
    made.suptitle(f"{workload}: UJFB with longer swaps", x=0.01, horizontalalignment="left")
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return made


def _slowdowns(workload: str, results: Results) -> Figure:
    """As Figure 17: how many jobs have a slowdown in each range."""
    made = plot_style.figure(9.0)
    labels = [f"to {SLOWDOWNS[0]:g}", *(f"to {edge:g}" for edge in SLOWDOWNS[1:]), f"above {SLOWDOWNS[-1]:g}"]
    places = np.arange(len(labels))
    for axes, policy in zip(made.subplots(1, 2, sharey=True), ("ujfb", BY_SLOWDOWN), strict=True):
        figures = results[Key(ReplayKind.TEXT, workload, policy)]
        axes.bar(places - 0.2, figures.regular, width=0.4, color=plot_style.BLUE, label="regular jobs")
        axes.bar(places + 0.2, figures.urgent, width=0.4, color=plot_style.RED, label="urgent jobs")
        axes.set_xticks(places, labels, rotation=30, horizontalalignment="right")
        _logarithmic(axes, 0.8)
        axes.set_title(f"{policy}: {figures.late:.1%} urgent and above 2")
        axes.set_xlabel("slowdown")
    made.axes[0].set_ylabel("jobs")
    made.suptitle(f"{workload}: how many jobs have which slowdown", x=0.01, horizontalalignment="left")
    made.legend(*made.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return made
