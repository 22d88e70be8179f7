"""Gives orders their AdminComments: marks, what is expected to be stored, and what others have written. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from omfs_daemon.cluster.het_jobs import stored_marks
from omfs_daemon.cluster.holds import admin_comment_of, is_held
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.marks import AdminComment, MarkWord, compose_admin_comment, epoch_of, numbered_mark
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.orders import HoldJobs, MarkedOrder, MarkingOrder, MarkJobs, ReleaseJobs

Anything = TypeVar("Anything")


class _Stored(NamedTuple):
    """``marks``: as job_submit.lua compares them."""

    comment: AdminComment
    is_held: bool
    marks: str


class StoredMarks:
    """The AdminComments that Slurm has stored: as observed, and as ordered since.

    ``job`` gives the observed job, also for one task of a pending array.
    """

    def __init__(self, job: Callable[[str], Job | None]) -> None:
        self._job = job
        self._ordered: dict[str, _Stored] = {}

    def of(self, ref: str) -> _Stored | None:
        """None for a job that was not observed."""
        first = single_refs(ref)[0]
        if first in self._ordered:
            return self._ordered[first]
        job = self._job(ref) or self._job(first)
        return None if job is None else _Stored(admin_comment_of(job), is_held(job), stored_marks(job))

    def set(self, ref: str, comment: AdminComment, is_held: bool) -> None:
        self._ordered.update(dict.fromkeys(single_refs(ref), _Stored(comment, is_held, comment.mark)))

    def forget(self, refs: Iterable[str]) -> None:
        """These orders were refused: what was observed counts again."""
        for ref in refs:
            for single in single_refs(ref):
                self._ordered.pop(single, None)


def with_marks(
    orders: Iterable[Anything], stored: StoredMarks, number: int, newer_than: int = -1
) -> list[Anything | MarkedOrder]:
    """The same orders, those that write a mark with their AdminComments and divided into jobs for which it is the same.

    ``number``: of this batch; ``newer_than``: marks up to this number are renewed even if they say the same. ``stored``
    is updated as if Slurm took them all. Jobs that were not observed are left out, as are releases of jobs that nobody
    holds.
    """
    found: list[Anything | MarkedOrder] = []
    for order in orders:
        if isinstance(order, HoldJobs | ReleaseJobs | MarkJobs):
            found += _divided(order, stored, number, newer_than)
        else:
            found.append(order)
    return found


def _divided(order: MarkingOrder, stored: StoredMarks, number: int, newer_than: int) -> list[MarkedOrder]:
    groups: dict[str, list[str]] = {}
    word = _word(order)
    for ref in order.refs:
        before = stored.of(ref)
        if before is None or (isinstance(order, ReleaseJobs) and not before.is_held):
            continue
        comment = before.comment
        # A mark that says the same stays: jobs that were marked together can be marked together again, and a release
        # that is repeated is known by the number that it had, whether this order reaches Slurm or not.
        # But one of an earlier epoch would have this order refused.
        is_same = comment.word is word and epoch_of(comment.number) == epoch_of(number)
        is_kept = not isinstance(order, HoldJobs) and is_same and comment.number > newer_than
        mark = comment.mark if is_kept else numbered_mark(word, number)
        sentence = order.sentence or (comment.sentence if isinstance(order, HoldJobs) else "")
        groups.setdefault(compose_admin_comment(mark, before.marks, sentence, comment.foreign), []).append(ref)
        holds = isinstance(order, HoldJobs) or (isinstance(order, MarkJobs) and before.is_held)
        stored.set(ref, AdminComment(mark, sentence, comment.foreign), holds)
    return [MarkedOrder(replace(order, refs=tuple(refs)), comment) for comment, refs in groups.items()]


def _word(order: MarkingOrder) -> MarkWord:
    if isinstance(order, MarkJobs):
        return order.word
    return MarkWord.HELD if isinstance(order, HoldJobs) else MarkWord.RELEASED


def single_refs(ref: str) -> list[str]:
    """The tasks that a reference names (``3_[4-5]``: 3_4 and 3_5), or the job itself."""
    array, _, tasks = ref.partition("_")
    if not tasks.startswith("["):
        return [ref]
    return [f"{array}_{task}" for task in values.tasks(tasks.strip("[]"))] or [ref]
