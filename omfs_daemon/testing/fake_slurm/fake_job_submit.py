"""What job_submit.lua does in slurm_job_modify about marks, for one record of a job at a time.

The daemon's update is compared with what is stored and refused if that is something else; what administrators do with a
job that carries a mark is recorded in it. Without the plug-in everything is let through and stored as it was sent.
"""

from __future__ import annotations

from omfs_daemon.cluster.marks import MarkWord, parse_admin_comment
from omfs_daemon.testing.fake_slurm.fake_jobs import Record

REFUSED = "Access/permission denied"
_MARKS = ("omfs:", "adm:")


def is_update_refused(record: Record, comment: str, holds: bool) -> bool:
    """Whether the daemon's AdminComment is refused, and with it the hold in the same update."""
    stored = parse_admin_comment(record.admin_comment)
    mark, asks, expected = comment.partition(" ")[0].partition("?")
    if mark.startswith(_MARKS) and (not asks or expected != stored.mark):
        return True
    is_ours = stored.word is MarkWord.HELD or (record.special_exit and stored.word is MarkWord.STOPPING)
    return holds and record.priority == 0 and not is_ours


def is_release_refused(record: Record) -> bool:
    """Whether the daemon's release is refused: it has not been announced."""
    return parse_admin_comment(record.admin_comment).word is not MarkWord.RELEASED


def stored_text(comment: str) -> str:
    """What is stored of a comment that was let through: without what was expected."""
    word, blank, rest = comment.partition(" ")
    return word.partition("?")[0] + blank + rest if word.startswith(_MARKS) else comment


def recorded_by_administrator(record: Record, holds: bool) -> str:
    """The AdminComment after an administrator has held or released the job."""
    stored = parse_admin_comment(record.admin_comment)
    if not stored.mark or (not holds and stored.word is MarkWord.RELEASED):
        return record.admin_comment
    word = MarkWord.ADMIN_HELD if holds else MarkWord.ADMIN_RELEASED
    return f"{word} | {stored.foreign}" if stored.foreign else word.value


def is_refused_to_owner(record: Record) -> bool:
    """Whether the owner may not hold or release the job: it is held or preempted by us."""
    return parse_admin_comment(record.admin_comment).word in (MarkWord.HELD, MarkWord.STOPPING)
