"""Which waiting jobs could start, and in which order they are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster import launched
from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.cluster.launched import RunState
from omfs_daemon.policy.plan import Band

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OUR_MARK = "omfs:"
"""An AdminComment that begins so marks a hold as ours. Users cannot write it (scontrol(1), AdminComment)."""

HOLD_MARK = f"{OUR_MARK}hold"
"""The mark of a job that the daemon holds."""

STOPPED_MARK = f"{OUR_MARK}stopped"
"""The mark of a job that was stopped for another; it stays until the job runs again."""

BAND_STEP = 250_000_000
"""Distance between two bands, above any priority that Slurm's factors add up to in practice."""

_WAITS_FOR_NODES = ("None", "Resources", "Priority", "ReqNodeNotAvail", "Nodes required for job are DOWN")


def is_held_by_us(job: Job) -> bool:
    """Whether the hold is the submit plug-in's or the daemon's; any other hold is none of our business.

    A stopped job that waits for its turn may be held by its owner; Slurm then says JobHeldUser, while the hold that
    comes with a requeue has a reason of its own, and that which omfs-run asks for shows in the state. A job that
    omfs-run could not restart is held for its owner, who alone can mend it.
    """
    if job.hold is Hold.NONE or not job.admin_comment.startswith(OUR_MARK):
        return False
    if job.special_exit and is_held_for_owner(job):
        return False
    is_stopped = job.admin_comment.startswith(STOPPED_MARK)
    is_owners = job.hold is Hold.USER and job.reason == "JobHeldUser" and is_stopped and not job.special_exit
    return not is_owners


def is_held_for_owner(job: Job) -> bool:
    """Whether omfs-run has put the job back because none of its checkpoints could be restarted."""
    run = launched.of(job)
    return run is not None and run.state is RunState.HELD


def could_start(job: Job, now: float) -> bool:
    """Whether only nodes are missing: no dependency, no begin time, no limit, no foreign hold."""
    return ready_from(job) <= now


def ready_from(job: Job) -> float:
    """From when on only nodes are missing, as far as one can tell; -inf: already, inf: never."""
    held = job.hold is not Hold.NONE
    if (held and not is_held_by_us(job)) or (not held and not _waits_for_nodes(job.reason)):
        return inf
    return -inf if job.eligible is None else job.eligible


@lru_cache(maxsize=1024)
def _waits_for_nodes(reason: str) -> bool:
    return not reason or reason.startswith(_WAITS_FOR_NODES)


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
