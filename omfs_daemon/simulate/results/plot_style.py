"""What all plots have in common: size, colors, the axis of time, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.simulate.results.result_files import save

# Okabe & Ito's palette, which the color-blind can distinguish.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
)
GRAY, DARK = "#BBBBBB", "#444444"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW)

# A salt of our own makes the ids in an SVG the same in every run. Names of accounts are text, not formulas.
_STYLE = {
    "svg.hashsalt": "omfs",
    "text.parse_math": False,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
}


class TimeUnit(NamedTuple):
    name: str
    seconds: float


def time_unit(span: float) -> TimeUnit:
    """One in which a span of so many seconds reads well."""
    for name, seconds, at_least in (("days", 86400.0, 3.0), ("hours", 3600.0, 3.0), ("minutes", 60.0, 3.0)):
        if span >= at_least * seconds:
            return TimeUnit(name, seconds)
    return TimeUnit("seconds", 1.0)


def style() -> matplotlib.RcParams:
    """For ``matplotlib.rc_context``: while a figure is made and while it is written."""
    return matplotlib.RcParams(_STYLE)


def figure(width: float = 9.0, height: float = 4.0) -> Figure:
    """An empty figure, in inches."""
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def bins(begin: float, end: float, count: int) -> Floats:
    """Edges of ``count`` equal bins; the span is never empty."""
    return np.linspace(begin, max(end, begin + 1.0), count + 1)


def stacked(axes: Axes, edges: Floats, layers: Sequence[Floats], colors: Sequence[str], labels: Sequence[str]) -> None:
    """Layers of one value per bin, on top of each other."""
    below = np.zeros(len(edges) - 1)
    for layer, color, label in zip(layers, colors, labels, strict=True):
        axes.stairs(below + layer, edges, baseline=below, fill=True, color=color, label=label, linewidth=0)
        below = below + layer


def write_figure(made: Figure, directory: Path, name: str) -> list[Path]:
    """``name.png`` and ``name.svg``; without dates and versions, so that the same figure gives the same file."""
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    save(png, lambda file: made.savefig(file, format="png", dpi=150, metadata={"Software": None}))
    save(svg, lambda file: made.savefig(file, format="svg", metadata={"Date": None}))
    return [png, svg]
