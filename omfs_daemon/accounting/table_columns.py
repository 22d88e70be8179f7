"""A table of our own, CSV or Parquet, that carries everything the policies know about a job.

Columns: job_id, submit, cpus, run; and, where known, limit (empty: none), account, class, method, memory,
swap, user, name. Times are seconds, sizes bytes. Facts of the whole workload (origin, cpus of the machine) precede a
CSV file's header in lines like ``# origin: 0.0``, and in a Parquet file's metadata.
"""

from __future__ import annotations

from math import inf

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.cells import Cells, NumberColumn, TextColumn
from omfs_daemon.errors import ConfigError

TABLE_CLASSES = ("regular", "urgent", "realtime")
TABLE_METHODS = ("never", "kill", "checkpoint", "swap")
"""How a job can be preempted, in the order of their numbers."""
TABLE_COLUMNS = (
    NumberColumn("job_id", bounds.NUMBER, whole=True),
    NumberColumn("submit", bounds.SECONDS),
    NumberColumn("cpus", bounds.CPUS, 1, whole=True),
    NumberColumn("run", bounds.SECONDS),
    NumberColumn("limit", bounds.SECONDS, default=inf),
    TextColumn("account", "all"),
    TextColumn("class", "regular", TABLE_CLASSES),
    TextColumn("method", "", TABLE_METHODS),
    NumberColumn("memory", bounds.BYTES, default=0),
    NumberColumn("swap", bounds.BYTES, default=0),
    TextColumn("user", ""),
    TextColumn("name", ""),
)


def require_known_columns(cells: Cells) -> None:
    """ConfigError for a column that a table of ours does not have."""
    unknown = [name for name in cells.names if name not in {rule.name for rule in TABLE_COLUMNS}]
    if unknown:
        allowed = ", ".join(rule.name for rule in TABLE_COLUMNS)
        raise ConfigError(f"{cells.path}: column {unknown[0]!r} is not known: allowed are {allowed}")


def table_remark(cells: Cells, key: str) -> float | None:
    """A fact of the whole workload, ``origin`` or ``cpus``; None if it is not given."""
    text = cells.remarks.get(key)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not 0 <= value <= bounds.SECONDS:
        raise ConfigError(f"{cells.path}: {key}: {text!r} is not allowed, only a number from 0 to {bounds.SECONDS:,}")
    return value
