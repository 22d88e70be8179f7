"""Who holds a waiting job, and whether it could start; both are read from the job itself."""

from __future__ import annotations

from functools import lru_cache
from math import inf

from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.cluster.run_report import RunState, run_report

OUR_MARK = "omfs:"
"""An AdminComment with this prefix marks a hold as ours. Users cannot write it (scontrol(1), AdminComment)."""

HOLD_MARK = f"{OUR_MARK}hold"
"""The mark of a job that the daemon holds."""

PREEMPTED_MARK = f"{OUR_MARK}stopped"
"""The mark of a job that was preempted; it stays until the job runs again. Jobs in Slurm carry this word already."""

GATE_MARK = f"{OUR_MARK}gate"
"""The mark of a job that job_submit.lua has held at submit."""

WAIT_MARK = f"{OUR_MARK}wait"
"""In the job's comment: job_submit.lua has held it again when its owner released it. It stands for GATE_MARK."""

_WAITS_FOR_NODES = ("None", "Resources", "Priority", "ReqNodeNotAvail", "Nodes required for job are DOWN")


def is_held_by_us(job: Job) -> bool:
    """Whether the submit plug-in or the daemon set the hold; we leave all other holds alone.

    The owner may hold a preempted job that waits for its turn; its reason is then JobHeldUser. The hold that comes with
    a requeue has another reason, and the one that omfs-run requests shows in the job state. A job that omfs-run could
    not restart is held for its owner, who alone can fix it.
    """
    if job.hold is Hold.NONE or not job.admin_comment.startswith(OUR_MARK):
        return False
    if job.special_exit and is_held_for_owner(job):
        return False
    is_preempted = job.admin_comment.startswith(PREEMPTED_MARK)
    is_owners = job.hold is Hold.USER and job.reason == "JobHeldUser" and is_preempted and not job.special_exit
    return not is_owners


def is_held_for_owner(job: Job) -> bool:
    """Whether omfs-run requeued and held the job because none of its checkpoints could be restarted."""
    run = run_report(job)
    return run is not None and run.state is RunState.HELD


def could_start(job: Job, now: float) -> bool:
    """Whether only nodes, or a hold of ours, keep the job waiting: no dependency, begin time, limit, or other hold."""
    return ready_from(job) <= now


def ready_from(job: Job) -> float:
    """When ``could_start`` becomes true, as far as known now; -inf: already, inf: unknown."""
    held = job.hold is not Hold.NONE
    if (held and not is_held_by_us(job)) or (not held and not _waits_for_nodes(job.reason)):
        return inf
    return -inf if job.eligible is None else job.eligible


@lru_cache(maxsize=1024)
def _waits_for_nodes(reason: str) -> bool:
    return not reason or reason.startswith(_WAITS_FOR_NODES)
