"""Bands by nice, and the order of the queue."""

from __future__ import annotations

from enum import IntEnum
from collections.abc import Sequence
from math import inf
import numpy as np
from numpy.typing import NDArray
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job


class Band(IntEnum):
    """The order among waiting jobs; a higher band starts first (design, "Order in bands")."""

    NONE = 0
    STOPPED_BORROWER = 1
    ENTITLED = 2
    STOPPED_ENTITLED = 3
    URGENT = 4
    BENEFICIARY = 5

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BAND_STEP = 250_000_000
"""Distance between two bands, above any priority that Slurm's factors add up to in practice."""


def has_band(job: Job) -> bool:
    return job.nice <= -BAND_STEP // 2


def band_of(job: Job) -> Band:
    """The band in which the job's ``nice`` puts it now."""
    if not has_band(job):
        return Band.NONE
    return Band(min(Band.BENEFICIARY, (-job.nice + BAND_STEP // 2) // BAND_STEP))


def own_nice(job: Job) -> int:
    """The ``nice`` that the job has apart from our bands."""
    return job.nice + band_of(job) * BAND_STEP


def nice_in(job: Job, band: Band) -> int:
    """The ``nice`` that puts the job into a band and keeps its own rank inside."""
    most = BAND_STEP // 2 - 1  # a nice beyond that would be taken for another band
    return max(-most, min(most, own_nice(job))) - band * BAND_STEP


def own_priority(job: Job) -> float:
    """Slurm's own priority. A job held by us has none (0 while held): it goes before its equals."""
    return inf if job.hold is not Hold.NONE else job.priority - band_of(job) * BAND_STEP


def own_priorities(jobs: Sequence[Job]) -> Floats:
    """The same for many jobs, as an array; most have no band, so most are read off."""
    none, edge = Hold.NONE, -BAND_STEP // 2
    return np.array(
        [job.priority if job.hold is none and job.nice > edge else own_priority(job) for job in jobs], dtype=np.float64
    )


def in_order(jobs: Sequence[Job]) -> Ints:
    """Indices of the jobs in the order in which they are looked at."""
    submitted = np.array([job.submit for job in jobs], dtype=np.float64)
    return in_turn(own_priorities(jobs), submitted, np.array([job.id for job in jobs], dtype=np.int64))


def in_turn(own: Floats, submitted: Floats, ids: Ints) -> Ints:
    """The order of the queue: by Slurm's own priority, then by age, then by id."""
    return np.lexsort((ids, submitted, -own)).astype(np.int64)
