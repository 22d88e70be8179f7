"""Bounds on the values of a label: each value is a series of its own, for as long as Prometheus keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

OTHER = "other"
"""The value that stands for all beyond the bound."""

MOST_VALUES = 50
"""Of a label whose values are codes: methods, reasons, outcomes, kinds of errors. There are at most a few dozen."""


class LabelValues:
    """The values of one label: the first ``most`` different ones, and ``other`` for all further ones."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def bounded(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


class GaugeByLabel:
    """A gauge with one label, whose values are known as a whole each time."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(f"omfs_{name}", text, [label], registry=registry)
        self._present: set[str] = set()

    def replace(self, values: Mapping[str, float]) -> None:
        """A value of the label that is missing loses its series; the others are there all the time."""
        for name, value in values.items():
            self._gauge.labels(name).set(value)
        for name in self._present - values.keys():
            self._gauge.remove(name)
        self._present = set(values)
