"""A heterogeneous job as one job (https://slurm.schedmd.com/heterogeneous_jobs.html). Pure.

Slurm keeps a record for each part, ``169+0``, ``169+1``, with raw ids that follow each other; that of the first part
names the whole. Measured on 22.05.8:

- Only the backfill scheduler starts it: all parts at once, each on nodes that no other part is on.
- An update, hold, or release of ``169`` is one of every part, with the AdminComment and nice for each; one of ``169+1``
  or of a part's raw id is of that part alone. job_submit.lua sees each part by itself, at the submit and in updates.
  What it refuses for one part is done to the others; Slurm says only what became of the last part.
- sbatch gives a part without a comment that of another one, the one before it if it has one.
- suspend, resume, and requeue take ``169`` alone, and are of all parts at once; Slurm refuses them for a part. After a
  requeue the part with the batch script is COMPLETING for longer than the others, which are PENDING already.
- A part can be canceled, or reach its own time limit, while the others run on; one that waits cannot. Such a job can
  still be requeued, but never starts again. Orders for ``169`` are carried out for what is left of it, and refused for
  the part that has ended. A job that is requeued after its end never starts again either; one whose node fails does.
- ``scontrol update nodelist=`` does not take ``169`` or ``169+1``, so that the first part cannot be pinned; the raw id
  of a later part it takes. While a heterogeneous job that is first waits, nothing behind it starts in its partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from omfs_daemon.cluster.holds import WAIT_WORD, admin_comment_of, is_held, ready_from
from omfs_daemon.cluster.jobs import (
    Job,
    JobPart,
    JobRequest,
    JobState,
    differ_in_run_time_only,
    with_run_time,
)
from omfs_daemon.cluster.marks import MarkWord, parse_admin_comment

MOST_PARTS = 32
"""Jobs of more are set aside: placing parts takes time that grows with their number, and users choose that."""

_UNREAD = JobRequest(cpus=0)

# What any part does, the job does: it is preempted only once none runs, and waits only once all wait.
_FIRST_STATE = (
    JobState.RUNNING,
    JobState.CONFIGURING,
    JobState.SUSPENDED,
    JobState.COMPLETING,
    JobState.PENDING,
    JobState.ENDED,
)

_ALIKE = (("account", "account"), ("QOS", "qos"), ("user", "uid"))
_ALIKE_TO_START = (("reservation", "reservation"),)


def merge_parts(parts: Sequence[Job], whole_ids: Sequence[int]) -> list[Job]:
    """The job of these parts, by raw id; ``whole_ids``: the ids of all parts that it had when it was submitted.

    Its account, QOS, comment, and name are those of the first part, except for the word in the comment that says whose
    hold it is (``WAIT_WORD``). It waits for what any part waits for. If the parts differ in what decides whose use they
    are, or where they may start, they stay jobs of their own that are set aside.
    """
    live = [part for part in parts if part.state is not JobState.ENDED] or list(parts)
    if differ := _differ(live):
        why = f"the parts of its heterogeneous job differ in their {differ}"
        return [replace(part, set_aside=part.set_aside or why) for part in live]
    return [_merged(live, whole_ids)]


def _differ(parts: Sequence[Job]) -> str:
    """In what they do; "" if in nothing. Of a running job owners can change nothing of this but the reservation."""
    waits = all(part.state is JobState.PENDING for part in parts)
    fields = (*_ALIKE, *_ALIKE_TO_START) if waits else _ALIKE
    return next((name for name, field in fields if len({getattr(part, field) for part in parts}) > 1), "")


def part_ref(job: Job, at: int) -> str:
    """As users name the part: ``169+1``."""
    return f"{job.id}+{job.parts[at].id - job.id}"


def as_parts(job: Job) -> list[Job]:
    """Each part as a job for itself, for rules that Slurm applies to each; licenses count in all. Of any other job, the
    job."""
    found = zip(job.request.parts, job.parts, strict=True)
    return [replace(job, request=one, allocations=part.allocations, parts=()) for one, part in found] or [job]


def stored_marks(job: Job) -> str:
    """The mark that Slurm is believed to have stored, as job_submit.lua compares it: where the parts of a heterogeneous
    job differ, that of each in turn ("omfs:held:5,adm:rel")."""
    marks = {part.id - job.id: parse_admin_comment(part.admin_comment).mark for part in job.parts}
    if len(set(marks.values())) < 2:
        return admin_comment_of(job).mark
    return ",".join(marks.get(at, "") for at in range(max(marks) + 1))


def with_gres_everywhere(job: Job) -> Job:
    """The job without parts: of each generic resource it has on all of its nodes what any part has on one."""
    gres: dict[str, int] = {}
    for part in job.parts:
        gres |= {name: max(count, gres.get(name, 0)) for name, count in part.request.gres}
    return replace(job, request=replace(job.request, gres=tuple(sorted(gres.items())), parts=()), parts=())


class _Known(NamedTuple):
    """The parts of a job, the ids that it had, and what was made of them."""

    parts: Sequence[Job]
    ids: Sequence[int]
    jobs: list[Job]


class HetJobs:
    """Merges the parts among the jobs of each poll; a job that has not changed stays the same object."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def merge(
        self, jobs: Iterable[Job], first_of: Mapping[int, int], ids: Mapping[int, Sequence[int]], is_all: bool = True
    ) -> list[Job]:
        """``first_of``: the id of the first part, by that of each part; ``ids``: by it, those of all parts that the job
        had. ``is_all``: these are all jobs, so others are forgotten."""
        if not first_of:
            self._known = {} if is_all else self._known
            return list(jobs)
        known: dict[int, _Known] = {}
        single, parts = [], dict[int, list[Job]]()
        for job in jobs:
            if job.id in first_of:
                parts.setdefault(first_of[job.id], []).append(job)
            else:
                single.append(job)
        for first, found in parts.items():
            found.sort(key=lambda job: job.id)
            known[first] = self._again(self._known.get(first), found, ids.get(first, ()))
        self._known = known if is_all else self._known | known
        return [*single, *(job for one in known.values() for job in one.jobs)]

    @staticmethod
    def _again(before: _Known | None, parts: Sequence[Job], ids: Sequence[int]) -> _Known:
        if before is not None and before.ids == ids and len(before.parts) == len(parts):
            if all(old is new for old, new in zip(before.parts, parts, strict=True)):
                return before
            if len(before.jobs) == 1 and all(map(differ_in_run_time_only, before.parts, parts)):
                ran = max(part.run_time for part in parts)
                return _Known(parts, ids, [with_run_time(before.jobs[0], ran)])
        return _Known(parts, ids, merge_parts(parts, ids))


def _merged(parts: Sequence[Job], whole_ids: Sequence[int]) -> Job:
    first = parts[0]
    whole = whole_ids[0] if whole_ids else first.id
    waiting = max(parts, key=lambda part: (ready_from(part) == inf, is_held(part), ready_from(part)))
    eligible = [part.eligible for part in parts if part.eligible is not None]
    starts = [part.start for part in parts if part.start is not None]
    is_readable = not any(part.set_aside for part in parts)
    return replace(
        first,
        id=whole,
        ref=str(whole),
        state=min((part.state for part in parts), key=_FIRST_STATE.index),
        request=_request(parts) if is_readable else _UNREAD,
        partition=first.partition if len({part.partition for part in parts}) == 1 else "",
        hold=waiting.hold,
        reason=waiting.reason,
        priority=waiting.priority,
        admin_comment=_admin_comment(parts, waiting),
        comment=_comment(first, waiting),
        eligible=max(eligible, default=None),
        start=min(starts, default=None),
        run_time=max(part.run_time for part in parts),
        time_limit=max(part.time_limit for part in parts),
        deadline=min(part.deadline for part in parts),
        allocations=tuple(allocation for part in parts for allocation in part.allocations),
        licenses=_licenses(parts),
        singleton=any(part.singleton for part in parts),
        exclusive_user=any(part.exclusive_user for part in parts),
        special_exit=any(part.special_exit for part in parts),
        failed=any(part.failed for part in parts),
        requeue=all(part.requeue for part in parts),
        batch=all(part.batch for part in parts),
        set_aside=next(_why_set_aside(parts, whole_ids), ""),
        ended_part=_ended_part(parts, whole_ids),
        parts=tuple(map(_part, parts)) if is_readable else (),
    )


def _part(part: Job) -> JobPart:
    return JobPart(part.id, part.request, part.allocations, part.admin_comment)


def _admin_comment(parts: Sequence[Job], waiting: Job) -> str:
    """That of the part that waits. Once nobody holds any part, an administrator's release of one counts for all: the
    job is not held again while it waits."""
    if any(is_held(part) for part in parts):
        return waiting.admin_comment
    released = (part for part in parts if admin_comment_of(part).word is MarkWord.ADMIN_RELEASED)
    return next(released, waiting).admin_comment


def _comment(first: Job, waiting: Job) -> str:
    """The first part's, with the gate's word for a hold of its own only if the part that waits has it: of a part that
    its owner changes, the gate holds that part alone."""
    waits = WAIT_WORD in waiting.comment.split()
    words = first.comment.split()
    if waits == (WAIT_WORD in words):
        return first.comment
    return " ".join([*words, WAIT_WORD] if waits else [word for word in words if word != WAIT_WORD])


def _why_set_aside(parts: Sequence[Job], whole_ids: Sequence[int]) -> Iterator[str]:
    yield from (part.set_aside for part in parts if part.set_aside)
    if not whole_ids:
        yield "the parts of the heterogeneous job cannot be read"
    ended = _ended_part(parts, whole_ids)
    if ended and all(part.state is JobState.PENDING for part in parts):
        yield f"part {ended} of the heterogeneous job has ended, so that Slurm does not start it again"
    if len(parts) > MOST_PARTS:
        yield f"it is a heterogeneous job of more than {MOST_PARTS} parts"


def _ended_part(parts: Sequence[Job], whole_ids: Sequence[int]) -> str:
    left = {part.id for part in parts if part.state is not JobState.ENDED}
    ended = next((at for at, number in enumerate(whole_ids) if left and number not in left), None)
    return "" if ended is None else f"{whole_ids[0]}+{ended}"


def _request(parts: Sequence[Job]) -> JobRequest:
    requests = tuple(part.request for part in parts)
    return JobRequest(
        cpus=sum(request.cpus for request in requests),
        nodes=sum(request.nodes for request in requests),
        partitions=tuple(sorted({name for request in requests for name in request.partitions})),
        parts=requests,
    )


def _licenses(parts: Sequence[Job]) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(dict(part.licenses))
    return tuple(sorted(counts.items()))
