"""How fast a method is, fitted to past costs: seconds = fixed + bytes / rate. Pure.

Theil and Sen's line (the median of the slopes between all pairs of rows), fitted again to the rows near it: a quarter
of the rows may be far off, as those of victims that waited for others are, and the line still holds. Such rows are all
late, so that they would shift a line fitted once. Neither of its numbers is ever negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.preempt_methods import IN, OUT
from omfs_daemon.preemption.records import PaidCost

FEWEST = 6
"""Rows with a size that a line needs."""

VARIED = 1.5
"""Sizes vary if the large ones are so many times the small ones."""

MOST = 1000
"""The newest rows that are used, at most: pairs grow with their square."""

NEAR = 5.0
"""Rows within so many spreads of the first line count for the second: of normal noise, all but one in a thousand."""

_Floats = NDArray[np.float64]


class Point(NamedTuple):
    """One preemption or return of one job; ``size``: bytes on one of its nodes, which all move theirs at the same time
    (0: unknown)."""

    seconds: float
    size: int


class Fit(NamedTuple):
    """``fixed`` seconds whatever the size, and ``rate`` bytes per second (inf: the size does not matter).

    rows     how many went into it; median: seconds of all rows
    spread   half of the rows lie within so many seconds of the line, or of the median if there is none
    why_not  why there is no line, "" if there is one; without one ``fixed`` and ``rate`` mean nothing
    """

    rows: int
    median: float
    spread: float
    fixed: float = 0.0
    rate: float = inf
    why_not: str = ""

    @property
    def is_line(self) -> bool:
        return not self.why_not


class MethodDirection(NamedTuple):
    """A method in one direction, OUT or IN."""

    method: str
    direction: str


def points(rows: Iterable[PaidCost]) -> Mapping[MethodDirection, list[Point]]:
    """The points of each method and direction, from rows (oldest first); rows without seconds are left out.

    A return without a size has that of the preemption before it: what was written is what is read.
    """
    found: dict[MethodDirection, list[Point]] = {}
    written: dict[tuple[str, str], int] = {}
    for row in rows:
        size = row.size // max(1, row.nodes)
        if row.direction == OUT:
            written[row.job, row.method] = size
        elif row.direction == IN:
            size = size or written.get((row.job, row.method), 0)
        if row.direction in (OUT, IN) and isfinite(row.seconds) and row.seconds > 0:
            found.setdefault(MethodDirection(row.method, row.direction), []).append(Point(row.seconds, size))
    return found


def fit(rows: Iterable[Point]) -> Fit | None:
    """The line through the newest rows (oldest first); None without any."""
    newest = list(rows)[-MOST:]
    if not newest:
        return None
    seconds = np.array([row.seconds for row in newest], dtype=np.float64)
    size = np.array([row.size for row in newest], dtype=np.float64)
    median = float(np.median(seconds))
    sized = size > 0
    why_not = _why_not(size[sized])
    if why_not:
        return Fit(len(newest), median, _spread(seconds - median), why_not=why_not)
    fixed, per_byte = _line(size[sized], seconds[sized])
    left = seconds[sized] - fixed - per_byte * size[sized]
    near = np.abs(left) <= NEAR * _spread(left)
    if not _why_not(size[sized][near]):
        fixed, per_byte = _line(size[sized][near], seconds[sized][near])
        left = seconds[sized] - fixed - per_byte * size[sized]
    return Fit(int(sized.sum()), median, _spread(left), fixed, 1 / per_byte if per_byte > 0 else inf)


def _why_not(size: _Floats) -> str:
    if not size.size:
        return "no row has a size"
    if size.size < FEWEST:
        return f"{size.size} rows with a size: at least {FEWEST} are needed"
    small, large = np.percentile(size, (10, 90))
    return "" if large >= VARIED * small else f"the sizes do not vary: they are all about {small / 1e9:.3g} GB"


def _line(size: _Floats, seconds: _Floats) -> tuple[float, float]:
    """Seconds at no size, and per byte."""
    one, other = np.triu_indices(size.size, k=1)
    apart = size[other] - size[one]
    differ = apart != 0
    per_byte = float(np.median((seconds[other] - seconds[one])[differ] / apart[differ]))
    if per_byte <= 0:
        return float(np.median(seconds)), 0.0
    fixed = float(np.median(seconds - per_byte * size))
    # A line that would begin below nothing goes through nothing.
    return (fixed, per_byte) if fixed >= 0 else (0.0, float(np.median(seconds / size)))


def _spread(left: _Floats) -> float:
    return float(np.median(np.abs(left)))
