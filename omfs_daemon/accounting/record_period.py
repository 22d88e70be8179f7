"""Of which time the records of a log are wanted."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import NamedTuple

import polars as pl

from omfs_daemon.accounting.job_records import record_frame
from omfs_daemon.accounting.local_times import local_time
from omfs_daemon.errors import NothingFound


class RecordPeriod(NamedTuple):
    """Seconds since the epoch."""

    since: float = -inf
    until: float = inf


ALWAYS = RecordPeriod()
OUTSIDE = "times outside the period"
"""Why records are left out."""


class RecordsInPeriod:
    """Collects the records of a log that were pending or ran in a period; of the others nothing stays in memory.

    All runs after which a job came back are kept as well, for the figures of its later runs begin with the first; and
    records without a time of submission, which are another's to judge.
    """

    def __init__(self, period: RecordPeriod, came_back: frozenset[str]) -> None:
        self._period = period
        self._came_back = sorted(came_back)
        self._frames: list[pl.DataFrame] = []
        self._first, self._last = inf, -inf
        self.outside = 0

    def add(self, part: pl.DataFrame) -> None:
        """``part`` has the columns of ``RECORD_SCHEMA``, and any others."""
        times = part.filter(pl.col("submit") > 0).select(pl.min("submit"), pl.max("end")).row(0)
        self._first, self._last = min(self._first, times[0] or inf), max(self._last, times[1] or -inf)
        inside = part if self._period == ALWAYS else part.filter(self._wanted())
        self.outside += len(part) - len(inside)
        self._frames.append(inside)

    def _wanted(self) -> pl.Expr:
        over = pl.coalesce("end", pl.lit(inf)) >= self._period.since
        here = (pl.col("submit") < self._period.until) & (over | pl.col("state").is_in(self._came_back))
        return here | (pl.col("submit") <= 0)

    def frame(self, path: Path) -> pl.DataFrame:
        """All of them; NothingFound if there are only others."""
        found = pl.concat(self._frames) if self._frames else record_frame({}, pl.DataFrame())
        self._frames = []
        if self.outside and not len(found):
            known = " to ".join(local_time(time) for time in (self._first, self._last))
            raise NothingFound(f"{path}: no job in the period; what was read of the log is from {known}")
        return found
