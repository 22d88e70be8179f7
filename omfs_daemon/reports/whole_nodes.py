"""Jobs that had nodes to themselves."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from omfs_daemon.accounting.job_records import JobRecords
from omfs_daemon.errors import ConfigError


def as_whole_nodes(records: JobRecords, cores: int | None, nodes: int | None) -> JobRecords:
    """Each job with all cores of its nodes; ConfigError if the machine's nodes are not known or not all alike."""
    if not cores or not nodes:
        raise ConfigError("--exclusive: --procs and --nodes are needed, for the log does not say both")
    if cores % nodes:
        raise ConfigError(f"--exclusive: {cores:,} cores on {nodes:,} nodes are not equally many on each")
    each = cores // nodes
    whole = ((pl.col("cpus") + each - 1) // each * each).alias("cpus")
    return replace(records, frame=records.frame.with_columns(whole))
