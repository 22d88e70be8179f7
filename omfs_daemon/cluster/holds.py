"""Whose hold it is and whether a job could start is read off the job; preemption and failsafe need it without the policy."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.run_report import RunState

OUR_MARK = "omfs:"
"""An AdminComment that begins so marks a hold as ours. Users cannot write it (scontrol(1), AdminComment)."""

HOLD_MARK = f"{OUR_MARK}hold"
"""The mark of a job that the daemon holds."""

STOPPED_MARK = f"{OUR_MARK}stopped"
"""The mark of a job that was stopped for another; it stays until the job runs again."""

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
