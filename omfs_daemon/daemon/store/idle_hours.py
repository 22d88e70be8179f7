"""Why CPUs were idle, hour by hour, as the history keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

HOUR = 3600.0
WRITTEN_EVERY = 60.0
"""Seconds after which sums are written; a daemon that ends loses those since then."""


class IdleShare(NamedTuple):
    """What one cause adds to one hour. ``watched``: seconds in which the daemon saw why CPUs were idle."""

    begin: float
    cause: str
    watched: float
    cpu_seconds: float


class IdleHour(NamedTuple):
    """An hour; ``cpu_seconds`` by cause (``policy.idle_causes``), of the ``watched`` seconds."""

    begin: float
    watched: float
    cpu_seconds: Mapping[str, float]


class IdleHours:
    """Sums up until ``write``, which adds them to those of the same hour."""

    def __init__(self, write: Callable[[Sequence[IdleShare]], None]) -> None:
        self._write = write
        self._sums: dict[tuple[float, str], tuple[float, float]] = {}
        self._written: float | None = None

    def add(self, begin: float, end: float, cpus: Mapping[str, int]) -> None:
        """So many CPUs were idle from ``begin`` to ``end``, by cause; what holds 0 was watched, too."""
        for hour, seconds in _by_hour(begin, end):
            for cause, number in cpus.items():
                watched, cpu_seconds = self._sums.get((hour, cause), (0.0, 0.0))
                self._sums[hour, cause] = watched + seconds, cpu_seconds + number * seconds
        if self._written is None:
            self._written = begin
        if not 0 <= end - self._written < WRITTEN_EVERY:
            self._write([IdleShare(*key, *sums) for key, sums in self._sums.items()])
            self._sums.clear()
            self._written = end


def _by_hour(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The hours since the epoch that a time touches, and its seconds in each."""
    while begin < end:
        hour = begin // HOUR * HOUR
        until = min(end, hour + HOUR)
        yield hour, until - begin
        begin = until


def hours_of(shares: Iterable[IdleShare]) -> list[IdleHour]:
    """``shares`` in order of time."""
    found: dict[float, IdleHour] = {}
    for share in shares:
        hour = found.setdefault(share.begin, IdleHour(share.begin, share.watched, {}))
        found[share.begin] = hour._replace(cpu_seconds={**hour.cpu_seconds, share.cause: share.cpu_seconds})
    return list(found.values())
