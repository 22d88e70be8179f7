"""Where idle cores came from, day by day, and the profile of the machine at every change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.machine_use import HEAPS

IDLE_COLUMNS = ("begin", "end", "available", "used", *HEAPS, "down")
PROFILE_COLUMNS = ("time", "available", "used", "idle", "waiting_jobs", "waiting_cores")

DAY = 86400.0


def idle_rows(report: LogReport) -> Iterator[tuple[Value, ...]]:
    """Core seconds day by day (24 h from the begin of the period); heaps, used, and down sum up to available."""
    use = report.use
    edges = np.append(np.arange(report.begin, report.end, DAY), report.end)
    columns = [use.between(cores, edges) for cores in (use.available, use.used, *use.heaps.values(), use.down)]
    for at in range(len(edges) - 1):
        yield (float(edges[at]), float(edges[at + 1]), *(float(column[at]) for column in columns))


def profile_rows(report: LogReport) -> Iterator[tuple[Value, ...]]:
    """One row per change."""
    use = report.use
    columns = (use.time, use.available, use.used, use.idle, use.waiting, use.pending)
    yield from zip(*(column.tolist() for column in columns), strict=True)


def heap_shares(report: LogReport) -> dict[str, float]:
    """Each heap's share of all cores, and those of used and down cores."""
    use = report.use
    whole = use.core_seconds(use.available)
    parts = {"used": use.used, **use.heaps, "down": use.down}
    return {name: use.core_seconds(cores) / whole if whole else 0.0 for name, cores in parts.items()}
