"""A filled hole as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from omfs_daemon.reports.csv_files import Value
from omfs_daemon.reports.hole_filling import FilledHole

HOLE_JOB_COLUMNS = (
    *("job_id", "submit", "cores", "length", "accepted", "start", "end"),
    *("cores_at_submit", "first_fit", "end_at_first_fit", "refused_by"),
)


def hole_job_rows(hole: FilledHole, written: Callable[[float], str]) -> Iterator[tuple[Value, ...]]:
    """One row per job of the queue; ``written`` prints a time, empty for never."""
    queue = hole.queue
    ends = hole.first_fit + queue.length
    for job, job_id in enumerate(queue.job_id):
        accepted = bool(hole.accepted[job])
        fit, end = written(float(hole.first_fit[job])), written(float(ends[job]))
        length = float(queue.length[job])
        yield (
            job_id,
            written(float(queue.submit[job])),
            int(queue.cores[job]),
            length if np.isfinite(length) else None,
            accepted,
            fit if accepted else "",
            end if accepted else "",
            int(hole.cores_at_submit[job]),
            fit,
            end,
            hole.refused_by(job),
        )
