"""What job_submit.lua does in slurm_job_modify about holds and marks, for one record of a job at a time, while the
daemon lives.

The daemon's update is compared with what is stored and refused if that is something else; what administrators do with a
job that carries a mark is recorded in it; owners and Operators do not undo what we hold or preempt. Without the plug-in
everything is let through and stored as it was sent. Classes are not modeled: a job is preemptible if its comment names
a method.
"""

from __future__ import annotations

from omfs_daemon.cluster.holds import WAIT_WORD
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK, MarkWord, parse_admin_comment
from omfs_daemon.protocol import job_comment
from omfs_daemon.testing.fake_slurm.fake_jobs import Record

REFUSED = "Access/permission denied"
_MARKS = ("omfs:", "adm:")
_OURS = (MarkWord.HELD, MarkWord.STOPPING)


# -- the daemon ----------------------------------------------------------------------------------------------
def is_update_refused(record: Record, comment: str, holds: bool) -> bool:
    """Whether the daemon's AdminComment is refused, and with it the hold in the same update."""
    stored = parse_admin_comment(record.admin_comment)
    mark, asks, expected = comment.partition(" ")[0].partition("?")
    at_gate = is_held_at_gate(record)
    if mark.startswith(_MARKS) and not (asks and (expected == stored.mark or (at_gate and expected == SUBMIT_MARK))):
        return True
    word = parse_admin_comment(mark).word
    if mark.startswith("adm:") and (word is not MarkWord.ADMIN_RELEASED or holds):
        return True
    releases = word is MarkWord.RELEASED
    is_free = record.priority != 0 or record.state is JobState.SUSPENDED
    if is_free or at_gate or stored.word is MarkWord.HELD:
        return False
    if not (holds or releases):
        return word is MarkWord.STOPPING and stored.word is not word
    if stored.word is MarkWord.STOPPING:
        return not (releases or record.special_exit)
    is_unmarked_exit = not stored.mark and record.special_exit
    return not (releases and (stored.word is MarkWord.RELEASED or is_unmarked_exit))


def is_release_refused(record: Record) -> bool:
    """Whether the daemon's release is refused: it has not been announced."""
    return parse_admin_comment(record.admin_comment).word not in (MarkWord.RELEASED, MarkWord.ADMIN_RELEASED)


def stored_text(comment: str) -> str:
    """What is stored of a comment that was let through: without what was expected."""
    word, blank, rest = comment.partition(" ")
    return word.partition("?")[0] + blank + rest if word.startswith(_MARKS) else comment


# -- administrators ------------------------------------------------------------------------------------------
def recorded_by_administrator(record: Record, holds: bool) -> str:
    """The AdminComment after an administrator has held or released the job."""
    stored = parse_admin_comment(record.admin_comment)
    could_be_ours = bool(stored.mark) or is_held_at_gate(record) or record.special_exit
    if not could_be_ours or (not holds and (stored.word is MarkWord.RELEASED or record.priority != 0)):
        return record.admin_comment
    word = MarkWord.ADMIN_HELD if holds else MarkWord.ADMIN_RELEASED
    return f"{word} | {stored.foreign}" if stored.foreign else word.value


def is_text_refused(text: str) -> bool:
    """Whether an administrator's AdminComment is refused: it has a mark."""
    return text.startswith(_MARKS)


def commented_by_administrator(record: Record, text: str) -> str:
    """The AdminComment after an administrator has written one: our mark and sentence stay."""
    ours = record.admin_comment.partition(" | ")[0]
    return f"{ours} | {text}" if parse_admin_comment(ours).mark else text


def is_refused_to_operator(record: Record, holds: bool) -> bool:
    """Whether an Operator may not hold or release the job: that could not be recorded."""
    is_ours = is_held_at_gate(record) or parse_admin_comment(record.admin_comment).word in _OURS
    return is_ours or (holds and would_hold_be_lost(record))


# -- owners --------------------------------------------------------------------------------------------------
def is_refused_to_owner(record: Record) -> bool:
    """Whether the owner may not hold, release, move, or rank the job: it is held or preempted by us."""
    return parse_admin_comment(record.admin_comment).word in _OURS


def is_release_refused_to_owner(record: Record) -> bool:
    """The hold of an administrator who has used ``scontrol uhold`` is not the gate's to take over."""
    by_administrator = parse_admin_comment(record.admin_comment).word is MarkWord.ADMIN_HELD
    return is_refused_to_owner(record) or (by_administrator and not may_start_by_itself(record))


def is_comment_refused_to_owner(record: Record, comment: str) -> bool:
    """What was let in because it is preemptible stays so; the methods of what we hold or preempt stay the same."""
    before, after = _methods(record.comment), _methods(comment)
    return before != after and ((bool(before) and not after) or is_refused_to_owner(record))


def commented_by_owner(record: Record, comment: str) -> str:
    """The comment as it is stored."""
    return with_wait_word(comment) if WAIT_WORD in record.comment.split() else without_wait_word(comment)


def is_held_at_gate_after(record: Record) -> bool:
    """Whether the gate holds the job after a change by its owner, because we must decide anew."""
    return record.state is JobState.PENDING and record.priority != 0 and not may_start_by_itself(record)


def would_hold_be_lost(record: Record) -> bool:
    """Between the two commands of a release, Slurm takes a hold by anybody but an administrator and forgets it."""
    is_being_released = parse_admin_comment(record.admin_comment).word is MarkWord.RELEASED and record.priority == 0
    return is_being_released and WAIT_WORD not in record.comment.split()


def may_start_by_itself(record: Record) -> bool:
    """Whether Slurm may start it on idle CPUs: it is preemptible."""
    return bool(_methods(record.comment))


# -- the word for a hold after an act of the owner's ------------------------------------------------------------
def is_held_at_gate(record: Record) -> bool:
    """Whether the word in its comment says so. Where an administrator has held it since, its owner has released it in
    vain."""
    is_foreign = parse_admin_comment(record.admin_comment).word is MarkWord.ADMIN_HELD
    return record.priority == 0 and WAIT_WORD in record.comment.split() and not is_foreign


def with_wait_word(comment: str) -> str:
    return f"{without_wait_word(comment)} {WAIT_WORD}".strip()


def without_wait_word(comment: str) -> str:
    return " ".join(word for word in comment.split() if word != WAIT_WORD) if WAIT_WORD in comment else comment


def _methods(comment: str) -> list[str]:
    return [word for word in comment.split() if word.startswith(job_comment.METHOD_KEY)]
