"""Small logs from a table of our own; with a column ``log``, one for each of its values."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np

from omfs_daemon.accounting.cells import Cells, TextColumn, read_cells, understood
from omfs_daemon.accounting.table_columns import TABLE_COLUMNS, require_known_columns
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.optimum.instance import SmallJob, SmallLog, checkpoint_overhead, place_size
from omfs_daemon.simulate.optimum.solve import MOST_JOBS

_LOG = "log"
_COLUMNS = tuple(
    TextColumn("class", "regular", ("regular", "realtime")) if rule.name == "class" else rule for rule in TABLE_COLUMNS
)


def read_small_logs(path: Path, cpus: int, unit: int, memory_per_cpu: float, force: bool = False) -> list[SmallLog]:
    """The logs in order of their first row. Times are rounded up to whole seconds, run times to at least 1.

    cpus: of the machine; unit: of its smallest place; memory_per_cpu: bytes, of jobs of which the table says nothing.
    ConfigError if the file has anything malformed, a job fits no place, or a log has too many jobs without ``force``.
    """
    cells = read_cells(path)
    if _LOG not in cells.names:
        return [_small_log("", cells, cpus, unit, memory_per_cpu, force)]
    names = cells.frame[_LOG].cast(str).fill_null("").to_list()
    return [
        _small_log(name, _only(cells, np.array([other == name for other in names])), cpus, unit, memory_per_cpu, force)
        for name in dict.fromkeys(names)
    ]


def _only(cells: Cells, rows: np.ndarray) -> Cells:
    frame = cells.frame.filter(rows).drop(_LOG)
    return replace(cells, frame=frame, places=cells.places[rows])


def _small_log(name: str, cells: Cells, cpus: int, unit: int, memory_per_cpu: float, force: bool) -> SmallLog:
    where = f"{cells.path}: log {name}" if name else f"{cells.path}"
    require_known_columns(cells)
    columns, _ = understood(cells, _COLUMNS, strict=True)
    count = len(columns["job_id"])
    if count > MOST_JOBS and not force:
        raise ConfigError(
            f"{where}: {count} jobs, at most {MOST_JOBS} are allowed without --force: the time to prove an optimum "
            "grows about tenfold with every two jobs"
        )
    jobs = []
    for row in range(count):
        number, wanted = int(columns["job_id"][row]), int(columns["cpus"][row])
        size = place_size(wanted, unit, cpus)
        if size is None:
            raise ConfigError(f"{where}: job {number}: no place of the machine of {cpus:,} CPUs holds {wanted:,}")
        memory = float(columns["memory"][row]) or wanted * memory_per_cpu
        jobs.append(
            SmallJob(
                number,
                ceil(columns["submit"][row]),
                max(ceil(columns["run"][row]), 1),
                size,
                bool(columns["class"][row] == "realtime"),
                checkpoint_overhead(wanted, memory),
            )
        )
    return SmallLog(name, cpus, unit, tuple(jobs))
