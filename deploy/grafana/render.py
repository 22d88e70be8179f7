"""Draw the dashboards as pictures, from the same queries: for the documentation, and where there is no Grafana.

python3 -m deploy.grafana.render http://127.0.0.1:9090 --account bio --minutes 10 docs/dashboards
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from deploy.grafana.expressions import panel_expressions, usual_variables
from deploy.grafana.generate import DIRECTORY
from deploy.grafana.panels import COLUMNS
from deploy.grafana.prometheus_api import Series, query_range

POINTS = 150
COLORS = 64
_WIDTH, _LINE, _DOTS = 13.0, 0.34, 88  # inches, inches for a line of the grid, dots per inch
_MOST_NAMES = 8
_WITH_SECONDS = 1200.0
"""Seconds; the times of shorter pictures have seconds."""
_SCALES: Mapping[str, Sequence[tuple[float, str]]] = {
    "bytes": ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")),
    "Bps": ((10**9, "GB/s"), (10**6, "MB/s"), (10**3, "kB/s"), (1, "B/s")),
    "s": ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")),
    "percentunit": ((0.01, "%"),),
    "cps": ((1, "/s"),),
}

Answers = list[tuple[str, list[Series]]]


def with_unit(value: float, unit: str) -> str:
    """For people: ``with_unit(90, "s")`` is ``1.5 min``."""
    if unit == "dateTimeFromNow":
        return f"{max(0.0, time.time() - value / 1000):.0f} s ago"
    scales = _SCALES.get(unit, ((1, ""),))
    size, name = next(((size, name) for size, name in scales if abs(value) >= size), scales[-1])
    number = f"{value / size:,.0f}" if value / size >= 100 else f"{value / size:.3g}"
    return f"{number} {name}".strip()


def legend(template: str, labels: Mapping[str, str]) -> str:
    """As Grafana fills it in; without a template the labels themselves."""
    if not template:
        return ", ".join(f"{name}={value}" for name, value in labels.items() if name not in ("__name__", "job"))
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), template)


def draw(server: str, dashboard: Mapping[str, Any], account: str, start: float, end: float) -> Figure:
    """One dashboard between two times (seconds since the epoch)."""
    panels = dashboard["panels"]
    lines = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(_WIDTH, lines * _LINE + 0.5), facecolor="white")
    top = 1 - 0.45 / figure.get_figheight()
    figure.text(0.01, 1 - 0.3 / figure.get_figheight(), dashboard["title"], fontsize=13, weight="bold")
    variables = usual_variables(account, length=f"{int(end - start)}s")
    for panel in panels:
        place = panel["gridPos"]
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        bottom, height = top * (1 - (place["y"] + place["h"]) / lines), top * place["h"] / lines
        inch = 1 / figure.get_figheight()
        is_graph = panel["type"] == "timeseries"
        inside = (left + 0.042, bottom + 0.62 * inch, width - 0.055, height - 0.95 * inch)
        axes = figure.add_axes(inside if is_graph else (left + 0.005, bottom, width - 0.01, height - 0.05 * inch))
        step = max(1.0, (end - start) / POINTS)
        asked = panel_expressions(panel, variables)
        answers = [(name, query_range(server, expression, start, end, step)) for expression, name in asked]
        (_draw_graph if is_graph else _draw_number)(axes, panel, answers)
        if is_graph:
            axes.set_xlim(datetime.fromtimestamp(start), datetime.fromtimestamp(end))
            is_short = end - start < _WITH_SECONDS
            axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%H:%M:%S" if is_short else "%H:%M"))
    return figure


def _draw_graph(axes: Axes, panel: Mapping[str, Any], answers: Answers) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for template, found in answers:
        for series in found:
            times = [datetime.fromtimestamp(at) for at, _ in series.points]
            axes.plot(times, [value for _, value in series.points], lw=1, label=legend(template, series.labels))
    axes.set_title(panel["title"], fontsize=8, loc="left", weight="bold")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda value, _: with_unit(value, unit))
    axes.xaxis.set_major_locator(mpl.dates.AutoDateLocator(minticks=2, maxticks=5))
    axes.tick_params(labelsize=6)
    axes.grid(lw=0.3)
    handles, names = axes.get_legend_handles_labels()
    axes.legend(
        handles[:_MOST_NAMES], names[:_MOST_NAMES], fontsize=5.5, ncols=4, frameon=False, loc="upper left",
        bbox_to_anchor=(-0.03, -0.1), borderaxespad=0, columnspacing=1,
    )  # fmt: skip


def _draw_number(axes: Axes, panel: Mapping[str, Any], answers: Answers) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_linewidth(0.3)
    axes.text(0.03, 0.82, panel["title"], fontsize=7, weight="bold", transform=axes.transAxes)
    template, found = answers[0]
    text, color = "no data", "gray"
    if found:
        value = found[0].points[-1][1]
        faults = [step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None]
        text = with_unit(value, defaults["unit"])
        color = "tab:red" if any(value >= fault for fault in faults) else "tab:green"
        if panel["options"]["textMode"] == "name":
            text = legend(template, found[0].labels)
    size = 18 if len(text) < 12 else 11
    axes.text(0.5, 0.4, text, fontsize=size, color=color, ha="center", va="center", transform=axes.transAxes)


def save(figure: Figure, path: Path) -> None:
    """As a small PNG."""
    figure.savefig(path, dpi=_DOTS)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLORS)
    small.save(path, optimize=True)


def render_all(server: str, directory: Path, account: str, start: float, end: float) -> list[Path]:
    """Draw all dashboards; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(DIRECTORY.glob("*.json")):
        written.append(directory / f"{path.stem}.png")
        save(draw(server, json.loads(path.read_text()), account, start, end), written[-1])
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("server", help="URL of Prometheus")
    parser.add_argument("directory", type=Path, help="where the pictures go")
    parser.add_argument("--account", default="", help="of the dashboard about one account")
    parser.add_argument("--minutes", type=float, default=60.0, help="up to now")
    options = parser.parse_args()
    end = time.time()
    try:
        render_all(options.server, options.directory, options.account, end - 60 * options.minutes, end)
    except OSError as error:
        print(f"{options.server}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
