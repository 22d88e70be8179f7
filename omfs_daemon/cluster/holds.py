"""Who holds a job, who has released it, and whether it could start; all are read from the job itself.

A job is held if its Priority is 0. Slurm's reason goes stale, so it only tells that somebody else holds a job.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import inf

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, AdminComment, MarkWord, numbered_mark, parse_admin_comment
from omfs_daemon.cluster.run_report import RunState, run_report

WAIT_WORD = "omfs:wait"
"""In the job's comment: job_submit.lua has held the job again when its owner released it, as with ``SUBMIT_MARK``.
Slurm refuses an AdminComment in an owner's update."""

_OWNERS = "JobHeldUser"
_REQUEUED = "job_requeued_in_held_state"  # by ``scontrol requeuehold``, which the daemon never uses, but omfs-run may
_CANNOT_RUN = "BadConstraints"  # Slurm's own hold of a job whose nodes it can never have
_WAITS_FOR_NODES = ("None", "Resources", "Priority", "ReqNodeNotAvail", "Nodes required for job are DOWN")


def admin_comment_of(job: Job) -> AdminComment:
    """The job's AdminComment by its parts."""
    return parse_admin_comment(job.admin_comment)


def is_held(job: Job) -> bool:
    """Whether anybody holds it. A running job can be held, too: it runs on, and waits once it is requeued."""
    return job.hold is not Hold.NONE if job.state is JobState.PENDING else job.runs and job.priority == 0


def is_held_by_us(job: Job) -> bool:
    """Whether the daemon or the submit plug-in holds the job; all other holds are not touched.

    The hold of a job that we have suspended, and that was requeued since, counts: it comes from the suspension. A job
    whose script ended with an exit code for a hold is ours if we preempt it, and so is one that omfs-run has requeued
    and held itself after its checkpoint; one that omfs-run could not restart is held for its owner, who alone can fix
    it.
    """
    if not is_held(job):
        return False
    if job.special_exit and is_held_for_owner(job):
        return False
    if _is_held_at_submit(job):
        return True
    if admin_comment_of(job).word not in (MarkWord.HELD, MarkWord.STOPPING):
        return False
    return job.special_exit or not _is_any_reason(job, _OWNERS, _REQUEUED) or is_held_after_checkpoint(job)


def is_held_since_submit(job: Job) -> bool:
    """Whether job_submit.lua holds the job, and we have not held it ourselves since."""
    return is_held_by_us(job) and admin_comment_of(job).mark in ("", SUBMIT_MARK)


def is_released_by_administrator(job: Job) -> bool:
    """Whether an administrator has released a job that we held: Slurm no longer holds it, but it has our mark still, or
    job_submit.lua has recorded it."""
    word = admin_comment_of(job).word
    if job.state is not JobState.PENDING:
        return False
    return word is MarkWord.ADMIN_RELEASED or (word is MarkWord.HELD and not is_held(job))


def may_hold(job: Job) -> bool:
    """Whether a waiting job may be held by us, or be held more firmly than now: what an administrator has released is
    not held again while it waits, and what somebody else holds is left alone. The one place of this rule."""
    if job.state is not JobState.PENDING or is_released_by_administrator(job):
        return False
    if not is_held(job):
        return True
    can_its_owner_release_it = job.hold is Hold.USER and (job.special_exit or _is_held_at_submit(job))
    return can_its_owner_release_it and is_held_by_us(job)


def is_release_unfinished(job: Job, number: int) -> bool:
    """Whether the release of the batch with this number has written its mark, but has not released the job yet.

    So it looks, too, if somebody has held the job since: ask only until the release has been observed.
    """
    is_marked = admin_comment_of(job).mark == numbered_mark(MarkWord.RELEASED, number)
    return is_marked and is_held(job) and not _is_any_reason(job, _REQUEUED, _CANNOT_RUN)


def is_release_observed(job: Job, number: int) -> bool:
    """Whether the job was observed after the release of the batch with this number, and need not be released again."""
    stored = admin_comment_of(job)
    if stored.mark == numbered_mark(MarkWord.RELEASED, number):
        return not is_release_unfinished(job, number)
    return stored.number > number or stored.word in (MarkWord.ADMIN_HELD, MarkWord.ADMIN_RELEASED)


def is_let_go(job: Job, number: int) -> bool:
    """Whether the failsafe has released or resumed the job since the batch with this number, the journal's last: what
    the journal says of it is over, and if it is suspended, somebody else has done that."""
    return any(one.word is MarkWord.RELEASED and one.number > number for one in _comments_of(job))


def is_kept_by_administrator(job: Job) -> bool:
    """Whether an administrator holds it, or a part of it, on its nodes or off them."""
    return any(one.word is MarkWord.ADMIN_HELD for one in _comments_of(job))


def _comments_of(job: Job) -> list[AdminComment]:
    """Its own, and those of its parts: an order may have been refused for some of these, or given for one alone."""
    return [admin_comment_of(job), *(parse_admin_comment(part.admin_comment) for part in job.parts)]


def highest_number(jobs: Iterable[Job]) -> int:
    """The highest number of all marks: where the journal is lost, numbers go on from here."""
    return max((admin_comment_of(job).number for job in jobs if job.admin_comment), default=0)


def is_unfit(job: Job) -> bool:
    """Whether the nodes that it requests can never serve it, as Slurm says: it holds the job itself until these
    change."""
    return job.state is JobState.PENDING and job.reason.startswith(_CANNOT_RUN)


def is_held_for_owner(job: Job) -> bool:
    """Whether omfs-run requeued and held the job because none of its checkpoints could be restarted."""
    run = run_report(job)
    return run is not None and run.state is RunState.HELD


def is_held_after_checkpoint(job: Job) -> bool:
    """Whether omfs-run has requeued and held it, where the batch script could have lost its exit code."""
    run = run_report(job)
    return _is_any_reason(job, _REQUEUED) and run is not None and run.state is RunState.STOPPED


def could_start(job: Job, now: float) -> bool:
    """Whether only nodes, or a hold of ours, keep the job waiting: no dependency, begin time, limit, or other hold."""
    return ready_from(job) <= now


def waits_for(job: Job, now: float) -> str:
    """Slurm's reason for which a waiting job waits, as far as known; the first word. Of a held job Slurm names only the
    hold."""
    if job.eligible is not None and job.eligible > now:
        return "Dependency" if job.eligible == inf else "BeginTime"
    return job.reason.partition(",")[0].partition(" ")[0]


def ready_from(job: Job) -> float:
    """When ``could_start`` becomes true, as far as known now; -inf: already, inf: unknown."""
    held = is_held(job)
    if (held and not is_held_by_us(job)) or (not held and not _waits_for_nodes(job.reason)):
        return inf
    return -inf if job.eligible is None else job.eligible


def _is_held_at_submit(job: Job) -> bool:
    """Whether job_submit.lua holds it, which Slurm shows as a hold of its owner's."""
    if job.hold is not Hold.USER:
        return False
    stored = admin_comment_of(job)
    is_waiting = WAIT_WORD in job.comment.split() and stored.word in (None, MarkWord.RELEASED, MarkWord.ADMIN_RELEASED)
    return is_waiting or (stored.mark == SUBMIT_MARK and not _is_any_reason(job, _REQUEUED))


def _is_any_reason(job: Job, *reasons: str) -> bool:
    return not set(reasons).isdisjoint(job.reason.replace(" ", "_").split(","))


@lru_cache(maxsize=1024)
def _waits_for_nodes(reason: str) -> bool:
    return not reason or reason.startswith(_WAITS_FOR_NODES)
