"""Times that are written without a zone, many at once."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from math import isfinite
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.errors import ConfigError

_QUARTER = 900
"""Clocks are set at whole quarters of an hour."""


class Epochs(NamedTuple):
    """``twice``: a time that clocks showed twice; the first is taken."""

    seconds: Floats
    twice: Bools


def zone_named(name: str | None) -> tzinfo | None:
    """None: the machine's own; ConfigError for a zone that is not known."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"--timezone = {name!r}: no such zone; such as Europe/Paris or UTC are known") from None


def epochs(naive: Ints, zone: tzinfo | None) -> Epochs:
    """Seconds since the epoch of clock times, given as if they were of UTC; ``zone`` None: the machine's own."""
    quarters, at = np.unique(naive // _QUARTER, return_inverse=True)
    first, second = (
        np.array([_epoch(int(one) * _QUARTER, zone, fold) for one in quarters], dtype=np.float64) for fold in (0, 1)
    )
    # In the hour that clocks skip, the second reading is the earlier time.
    seconds: Floats = (first - quarters * _QUARTER)[at] + naive
    return Epochs(seconds, np.asarray(second > first)[at])


def notes_on_twice(count: int) -> tuple[str, ...]:
    """What a report on a log says of so many times that clocks showed twice."""
    return (f"{count:,} times are in an hour that clocks showed twice: the first is taken",) if count else ()


def clock_seconds(texts: pl.Series, pattern: str) -> pl.Series:
    """Of times written so, seconds as if they were of UTC; null where a text is no such time."""
    return texts.str.to_datetime(pattern, strict=False, time_unit="ms").dt.epoch("s")


def local_time(time: float, zone: tzinfo | None = None) -> str:
    """For people; ``zone`` None: the machine's own; ``unknown`` for no time."""
    return (
        datetime.fromtimestamp(time, UTC).astimezone(zone).isoformat(sep=" ", timespec="seconds")
        if isfinite(time)
        else "unknown"
    )


def _epoch(clock: int, zone: tzinfo | None, fold: int) -> float:
    try:
        time = datetime.fromtimestamp(clock, UTC).replace(tzinfo=zone, fold=fold)
        return time.timestamp()
    except (ValueError, OverflowError, OSError):
        return float(clock)
