"""Estimates of run times from a file: CSV with the columns job_id and seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.accounting.cells import NumberColumn, read_cells, understood
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.workload import Workload

_COLUMNS = (NumberColumn("job_id", bounds.NUMBER, whole=True), NumberColumn("seconds", bounds.SECONDS))
_NAMED = 5


def read_estimates(path: Path, jobs: Workload, otherwise: Floats, strict: bool) -> tuple[Floats, tuple[str, ...]]:
    """Seconds by job of the workload, and what is wrong with the numbers of jobs, in sentences.

    A job that the file does not have counts with ``otherwise``. ConfigError for a file that cannot be read, for any bad
    number in it, and where ``strict`` for jobs that are unknown or missing.
    """
    columns, _ = understood(read_cells(path), _COLUMNS, strict=True)
    ids, seconds = columns["job_id"], columns["seconds"]
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[order], jobs.job_id), len(ids) - 1)
    found = ids[order][place] == jobs.job_id
    unknown, missing = ids[~np.isin(ids, jobs.job_id)], jobs.job_id[~found]
    notes = tuple(
        f"{path}: {len(wrong):,} jobs {what}: {', '.join(map(str, wrong[:_NAMED].tolist()))}"
        + (", …" if len(wrong) > _NAMED else "")
        for what, wrong in (
            ("are not in the workload", unknown),
            ("of the workload are missing and count with their limits", missing),
        )
        if len(wrong)
    )
    if notes and strict:
        raise ConfigError("; ".join(notes))
    return np.where(found, seconds[order][place], otherwise), notes
