"""How fast a method is, from what stops have cost: seconds = fixed + bytes / rate. Pure.

Theil and Sen's line (the median of the slopes between all pairs of rows): a quarter of the rows may be far off, as
those of stops that waited for others are, and the line still holds. Neither of its numbers is ever negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.preemption.records import Paid

FEWEST = 6
"""Rows with a size that a line needs."""

VARIED = 1.5
"""Sizes vary if the large ones are so many times the small ones."""

MOST = 1000
"""Rows that are looked at, the newest ones: pairs grow with their square."""

STOP, BACK = "out", "in"

_Floats = NDArray[np.float64]


class Point(NamedTuple):
    """One stop or return of one job; ``size`` in bytes on one of its nodes, which all move theirs at the same time; 0:
    unknown."""

    seconds: float
    size: int


class Fit(NamedTuple):
    """``fixed`` seconds whatever the size, and ``rate`` bytes per second (inf: the size does not matter).

    rows     how many went into it; median: seconds of all rows
    spread   half of the rows lie within so many seconds of the line, or of the median if there is none
    why_not  why there is no line, "" if there is one; without one ``fixed`` and ``rate`` say nothing
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


class Way(NamedTuple):
    """A method in one direction, STOP or BACK."""

    method: str
    way: str


def points(rows: Iterable[Paid]) -> Mapping[Way, list[Point]]:
    """What rows (oldest first) tell of each method; those that tell no seconds are left out.

    Where a return does not tell its size it is that of the stop before it: what was written is what is read.
    """
    found: dict[Way, list[Point]] = {}
    written: dict[tuple[str, str], int] = {}
    for row in rows:
        size = row.size // max(1, row.nodes)
        if row.way == STOP:
            written[row.job, row.method] = size
        elif row.way == BACK:
            size = size or written.get((row.job, row.method), 0)
        if row.way in (STOP, BACK) and isfinite(row.seconds) and row.seconds > 0:
            found.setdefault(Way(row.method, row.way), []).append(Point(row.seconds, size))
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
    return Fit(int(sized.sum()), median, _spread(left), fixed, 1 / per_byte if per_byte > 0 else inf)


def _why_not(size: _Floats) -> str:
    if not size.size:
        return "no row tells a size"
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
