"""Builders of Grafana's dashboards: queries, panels, and the grid in which they stand.

In an expression ``$i`` stands for the instances that the viewer has chosen, and ``$r`` for the interval of a rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 40
COLUMNS = 24
"""Of Grafana's grid."""

_PLACES = {"$i": 'instance=~"$instance"', "$r": "$__rate_interval"}
_GREEN, _RED = "green", "red"


@dataclass(frozen=True)
class Query:
    """``legend``: with ``{{label}}`` for the value of a label."""

    expression: str
    legend: str = ""

    @property
    def text(self) -> str:
        found = self.expression
        for place, meaning in _PLACES.items():
            found = found.replace(place, meaning)
        return found


@dataclass(frozen=True)
class Panel:
    """``unit`` is one of Grafana's; ``red_from``: values from there on are a fault (for ``stat``: in red)."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    red_from: float | None = None
    names: bool = False

    def json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._stat_options() if self.kind == "stat" else _GRAPH_OPTIONS,
            "targets": [_target(query, at) for at, query in enumerate(self.queries)],
        }

    def _defaults(self) -> Json:
        steps: list[Json] = [{"color": _GREEN, "value": None}]
        if self.red_from is not None:
            steps.append({"color": _RED, "value": self.red_from})
        found: Json = {
            "unit": self.unit,
            "min": 0,
            "color": {"mode": "thresholds" if self.kind == "stat" else "palette-classic"},
            "thresholds": {"mode": "absolute", "steps": steps},
        }
        if self.kind != "stat":
            found["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        return found

    def _stat_options(self) -> Json:
        return {
            "colorMode": "value",
            "graphMode": "none" if self.names else "area",
            "justifyMode": "auto",
            "textMode": "name" if self.names else "auto",
            "wideLayout": True,
            "orientation": "auto",
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "values": False},
        }


_GRAPH_OPTIONS: Json = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}


def _target(query: Query, at: int) -> Json:
    return {"refId": chr(ord("A") + at), "datasource": DATASOURCE, "expr": query.text, "legendFormat": query.legend}


# -- panels of one kind each ----------------------------------------------------------------------------------------
def graph(title: str, unit: str, *queries: Query, text: str = "", width: int = 8) -> Panel:
    """Lines over time."""
    return Panel(title, queries, unit, text, width=width)


def number(title: str, expression: str, unit: str = "short", red_from: float | None = None, text: str = "") -> Panel:
    """The latest value, large."""
    return Panel(title, (Query(expression),), unit, text, "stat", width=4, height=4, red_from=red_from)


def labels(title: str, expression: str, legend: str) -> Panel:
    """The labels of a metric that is always 1."""
    return Panel(title, (Query(expression, legend),), kind="stat", width=8, height=4, names=True)


def quantiles(title: str, unit: str, histogram: str, by: str = "", text: str = "", width: int = 8) -> Panel:
    """Median and 95th percentile of a histogram, in total or by a label."""
    groups = f"le, {by}" if by else "le"
    rates = f"sum by ({groups}) (rate({histogram}_bucket{{$i}}[$r]))"
    prefix = f"{{{{{by}}}}} " if by else ""
    queries = [
        Query(f"histogram_quantile({share}, {rates})", prefix + name)
        for share, name in ((0.5, "median"), (0.95, "95 %"))
    ]
    return graph(title, unit, *queries, text=text, width=width)


# -- dashboards -------------------------------------------------------------------------------------------------------
def dashboard(
    uid: str, title: str, text: str, panels: Iterable[Panel], variables: Sequence[Mapping[str, Any]] = ()
) -> Json:
    """Panels stand in lines from left to right, a new line begins where one does not fit."""
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["omfs"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [_LINK],
        "annotations": {"list": []},
        "templating": {"list": [_SOURCE, variable("instance", "omfs_build_info", several=True), *variables]},
        "panels": list(_placed(panels)),
    }


def variable(label: str, metric: str, several: bool) -> Json:
    """A choice among the values that a label has; ``several``: or all."""
    query = f"label_values({metric}, {label})"
    found: Json = {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
    }
    everything: Json = {"includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"}}
    return {**found, **everything} if several else found


_SOURCE: Json = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
_LINK: Json = {
    "type": "dashboards",
    "title": "omfs-daemon",
    "tags": ["omfs"],
    "asDropdown": True,
    "includeVars": False,
    "keepTime": True,
    "targetBlank": False,
    "icon": "",
    "tooltip": "",
    "url": "",
}


def _placed(panels: Iterable[Panel]) -> Iterator[Json]:
    x = y = height = 0
    for at, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        yield panel.json(at, x, y)
        x, height = x + panel.width, max(height, panel.height)
