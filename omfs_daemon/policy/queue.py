"""Which waiting jobs could start, and in which order they are looked at."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.policy.plan import Band

OUR_MARK = "omfs:"
"""An AdminComment that begins so marks a hold as ours. Users cannot write it (scontrol(1), AdminComment)."""

BAND_STEP = 250_000_000
"""Distance between two bands, above any priority that Slurm's factors add up to in practice."""

_WAITS_FOR_NODES = ("None", "Resources", "Priority", "ReqNodeNotAvail", "Nodes_required_for_job_are_DOWN")


def is_held_by_us(job: Job) -> bool:
    """Whether the hold is the submit plug-in's or the daemon's; any other hold is none of our business."""
    return job.hold is not Hold.NONE and job.admin_comment.startswith(OUR_MARK)


def could_start(job: Job, now: float) -> bool:
    """Whether only nodes are missing: no dependency, no begin time, no limit, no foreign hold."""
    if job.hold is not Hold.NONE:
        return is_held_by_us(job)
    if job.eligible is not None and job.eligible > now:
        return False
    return not job.reason or job.reason.startswith(_WAITS_FOR_NODES)


def band_of(job: Job) -> Band:
    """The band in which the job's ``nice`` puts it now."""
    if job.nice > -BAND_STEP // 2:
        return Band.NONE
    return Band(min(Band.BENEFICIARY, (-job.nice + BAND_STEP // 2) // BAND_STEP))


def own_nice(job: Job) -> int:
    """The ``nice`` that the job has apart from our bands."""
    return job.nice + band_of(job) * BAND_STEP


def nice_in(job: Job, band: Band) -> int:
    """The ``nice`` that puts the job into a band and keeps its own rank inside."""
    return own_nice(job) - band * BAND_STEP


def own_priority(job: Job) -> float:
    """Slurm's own priority. A job held by us has none (0 while held): it goes before its equals."""
    return inf if job.hold is not Hold.NONE else job.priority - band_of(job) * BAND_STEP


def in_order(jobs: Iterable[Job], stopped: Iterable[str]) -> list[Job]:
    """Stopped jobs at the head (UJFB, section IV), then by Slurm's own priority, then by age."""
    heads = frozenset(stopped)
    return sorted(jobs, key=lambda job: (job.ref not in heads, -own_priority(job), job.submit, job.id))
