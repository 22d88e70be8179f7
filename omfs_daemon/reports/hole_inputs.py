"""A bare profile of idle cores and a bare queue, as tables: holes that no log recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.accounting.cells import Cells, NumberColumn, TextColumn, read_cells, understood
from omfs_daemon.errors import ConfigError
from omfs_daemon.reports.hole_filling import HoleQueue, IdleProfile

_SECONDS = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_ALLOWED = "seconds or such as 2016-10-16T17:00:00"


class HoleInputs(NamedTuple):
    """``written``: how to print a time so as the tables have them."""

    profile: IdleProfile
    queue: HoleQueue
    start: float
    written: Callable[[float], str]


def read_hole_inputs(profile: Path, queue: Path, start: str) -> HoleInputs:
    """ConfigError for a missing or unusable table or time.

    profile  columns time, free; times ascend
    queue    columns job_id, submit, cores, length (seconds), in the order in which jobs are tried

    Times are seconds, or written out; without a zone they are all of one zone without summer time.
    """
    stamps, jobs = _filled_cells(profile), _filled_cells(queue)
    idle, _ = understood(stamps, (TextColumn("time"), NumberColumn("free", bounds.CPUS, whole=True)), True, "time")
    cores, length = NumberColumn("cores", bounds.CPUS, 1, whole=True), NumberColumn("length", bounds.SECONDS)
    pending, _ = understood(jobs, (TextColumn("job_id"), TextColumn("submit"), cores, length), strict=True)
    time, submit = _times(stamps, "time", idle["time"]), _times(jobs, "submit", pending["submit"])
    late = np.flatnonzero(np.diff(time) <= 0)
    if len(late):
        place = stamps.at(int(stamps.places[late[0] + 1]))
        raise ConfigError(f"{profile}: {place}: column time: must be after the one before")
    begin = _seconds(start)
    if begin is None:
        raise ConfigError(f"--start = {start!r}: must be {_ALLOWED}")
    if begin <= time[0]:
        raise ConfigError(f"--start = {start!r}: must be after the first time of {profile}")
    queued = HoleQueue(pending["job_id"].tolist(), submit, pending["cores"], pending["length"])
    as_numbers = bool(_SECONDS.fullmatch(str(idle["time"][0])))
    return HoleInputs(IdleProfile(time, idle["free"]), queued, begin, seconds_text if as_numbers else iso_text)


def _filled_cells(path: Path) -> Cells:
    cells = read_cells(path)
    if not len(cells.frame) and not cells.broken:
        raise ConfigError(f"{path}: no {cells.unit} of data below the header")
    return cells


def seconds_text(time: float) -> str:
    """``12.5``; empty for never."""
    return f"{time:.15g}" if np.isfinite(time) else ""


def iso_text(time: float) -> str:
    """``2016-10-16T17:00:00``; empty for never."""
    if not np.isfinite(time):
        return ""
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat()


def _times(cells: Cells, name: str, texts: np.ndarray) -> Floats:
    found = [_seconds(str(text)) for text in texts]
    for row, (time, text) in enumerate(zip(found, texts, strict=True)):
        if time is None:
            raise ConfigError(
                f"{cells.path}: {cells.at(int(cells.places[row]))}: column {name}: {str(text)!r} is not allowed, "
                f"only {_ALLOWED}"
            )
    return np.array(found, dtype=np.float64)


def _seconds(text: str) -> float | None:
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        time = datetime.fromisoformat(text.strip())
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
