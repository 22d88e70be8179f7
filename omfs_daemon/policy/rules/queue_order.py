"""The queue order, and the bands that ``nice`` puts waiting jobs into."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import inf

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.jobs import Hold, Job


class Band(IntEnum):
    """The order among waiting jobs; a higher band starts first."""

    NONE = 0
    PREEMPTED_BORROWER = 1
    ENTITLED = 2
    PREEMPTED_ENTITLED = 3
    REALTIME = 4
    URGENT = 5
    PREEMPTOR = 6


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BAND_STEP = 250_000_000
"""The distance between two bands; larger than the sum of Slurm's priority factors in practice."""


def has_band(job: Job) -> bool:
    return job.nice <= -BAND_STEP // 2


def band_of(job: Job) -> Band:
    """The band into which the job's present ``nice`` puts it."""
    if not has_band(job):
        return Band.NONE
    return Band(min(Band.PREEMPTOR, (-job.nice + BAND_STEP // 2) // BAND_STEP))


def own_nice(job: Job) -> int:
    """The job's ``nice`` without our band."""
    return job.nice + band_of(job) * BAND_STEP


def nice_in(job: Job, band: Band) -> int:
    """The ``nice`` that puts the job into a band and keeps its order within it."""
    most = BAND_STEP // 2 - 1  # a nice beyond that would be taken for another band
    return max(-most, min(most, own_nice(job))) - band * BAND_STEP


def own_priority(job: Job) -> float:
    """Slurm's priority without our band. A held job has none (0), so it goes first."""
    return inf if job.hold is not Hold.NONE else job.priority - band_of(job) * BAND_STEP


def own_priorities(jobs: Sequence[Job]) -> Floats:
    """The same for many jobs, as an array; most have no band, which is fast."""
    none, edge = Hold.NONE, -BAND_STEP // 2
    return np.array(
        [job.priority if job.hold is none and job.nice > edge else own_priority(job) for job in jobs], dtype=np.float64
    )


def queue_order(jobs: Sequence[Job]) -> Ints:
    """The indices of the jobs in queue order."""
    submitted = np.array([job.submit for job in jobs], dtype=np.float64)
    return sorted_indices(own_priorities(jobs), submitted, np.array([job.id for job in jobs], dtype=np.int64))


def sorted_indices(own: Floats, submitted: Floats, ids: Ints) -> Ints:
    """The queue order: by Slurm's priority, then by age, then by id."""
    return np.lexsort((ids, submitted, -own)).astype(np.int64)
