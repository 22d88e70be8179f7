"""Parse what Slurm's commands print about jobs. Pure and strict.

Jobs come from ``squeue -O field:suffix`` (squeue(1): with a suffix and no size, a field is printed in full). Users
write newlines and anything else into names and comments, so the suffix is a secret of each call and the text is split
on that alone. ParseError quotes what could not be parsed. But a row with a field that cannot be read concerns its job
alone, which is set aside: else a user could stop the daemon with one odd request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeVar

from omfs_daemon.cluster.job_refs import tasks_ref
from omfs_daemon.cluster.jobs import MOST_LOCAL_ID, Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.parse_requests import Requests, shared_request
from omfs_daemon.slurm.commands.site_sizes import SiteSizes
from omfs_daemon.slurm.commands.squeue_fields import JobRow, first_part, job_state, row_nodes, row_state

COMMENT_KEPT = 16384
"""As many characters as job_submit.lua reads of a comment: Slurm lets an update exceed the 1,024 of a submission."""
_NAME_KEPT = 128
_SHOWN = 160
_NO_UID = -1
_NO_REQUEST = JobRequest(cpus=0)

# In a list of dependencies; what is fulfilled Slurm takes off the list.
UNFULFILLED, FAILED = "(unfulfilled)", "(failed)"
SINGLETON = "singleton"

Value = TypeVar("Value")


def excluded(printed: str, secret: str) -> dict[str, str]:
    """Job id and ExcNodeList, "" of jobs that exclude no nodes."""
    fields = printed.split(secret)
    if fields.pop().strip() or len(fields) % 2:
        raise ParseError(f"squeue printed a part of a job: {printed[-_SHOWN:]!r}")
    rows = zip(fields[::2], fields[1::2], strict=True)
    return {job_id.lstrip("\n"): listed if values.text(listed) else "" for job_id, listed in rows}


def job(
    row: JobRow,
    excluded_nodes: str,
    site: SiteSizes,
    allocations: tuple[Allocation, ...] | None,
    requests: Requests | None = None,
) -> Job:
    """The job of a row; ParseError only if it has no id.

    ``allocations``: None if they cannot be read. ``requests``: those of other jobs of the site, to be shared. While a
    job is held, its reason names nothing but the hold, so ``eligible`` shows what else it waits for: its begin time,
    infinity while a dependency is unfulfilled, None if Slurm has not considered it yet or it waits for nothing else.
    """
    fields = _Fields()
    read = fields.read
    state = read(row_state(row), job_state, row.state)
    waits = state is JobState.PENDING
    no_tasks: tuple[int, ...] = ()
    task_ids = read(no_tasks, values.tasks, row.array_task_id)
    if allocations is None:
        fields.fault("its allocation")
    return Job(
        id=values.whole(row.job_id),
        ref=read(row.job_id, _ref, row, task_ids),
        user=row.user,
        uid=read(_NO_UID, values.whole, row.uid),
        account=values.text(row.account),
        state=state,
        request=read(_NO_REQUEST, _request, row, excluded_nodes, site, allocations, requests),
        submit=read(None, values.epoch, row.submit) or 0.0,
        partition=row.partition.partition(",")[0],
        qos=values.text(row.qos),
        hold=read(Hold.NONE, _hold, row) if waits else Hold.NONE,
        reason=values.text(row.reason),
        priority=read(0, values.whole, row.priority),
        nice=read(0, values.whole, row.nice),
        eligible=inf if waits and still_waits(row.dependency) else read(None, values.epoch, row.eligible),
        start=read(None, _start, row, state),
        run_time=read(0.0, run_time, row.time_used),
        time_limit=read(inf, values.duration, row.time_limit),
        deadline=read(None, values.epoch, row.deadline) or inf,
        allocations=whole_nodes(row) if allocations is None else allocations,
        licenses=values.license_counts(row.licenses),
        array_id=read(None, values.whole, row.array_job_id) if task_ids else None,
        task_ids=task_ids,
        array_throttle=read(0, values.array_throttle, row.array_task_id),
        restarts=read(0, values.whole, row.restarts),
        special_exit=row.state == "SPECIAL_EXIT",
        failed=row.state == "FAILED",
        requeue=row.requeue != "0",
        batch=row.batch != "0",
        comment=values.text(row.comment)[:COMMENT_KEPT],
        admin_comment=values.text(row.admin_comment),
        reservation=values.text(row.reservation),
        singleton=SINGLETON in row.dependency,
        exclusive_user=row.over_subscribe == "USER",
        name=values.text(row.name)[:_NAME_KEPT],
        set_aside=fields.unread or "it is a job of a federation" * (int(row.job_id) > MOST_LOCAL_ID),
    )


class _Fields:
    """The fields of one row; ``unread`` names the first that cannot be read."""

    def __init__(self) -> None:
        self.unread = ""

    def read(self, default: Value, parse: Callable[..., Value], *parts: object) -> Value:
        """What ``parse`` makes of these parts of the row; ``default`` if it cannot read them."""
        try:
            return parse(*parts)
        except ParseError as error:
            self.fault(str(error))
            return default

    def fault(self, what: str) -> None:
        self.unread = self.unread or f"what Slurm shows of it cannot be read: {what}"


def whole_nodes(row: JobRow) -> tuple[Allocation, ...]:
    """The nodes of a job of which nothing more can be read."""
    return tuple(Allocation(name, 0, 0) for name in row_nodes(row))


def run_time(time_used: str) -> float:
    return 0.0 if time_used == "INVALID" else values.duration(time_used)


def still_waits(dependency: str) -> bool:
    """Whether a job waits for another one, as Slurm shows it."""
    return UNFULFILLED in dependency or FAILED in dependency


# -- parts of a job --------------------------------------------------------------------------------
def _ref(row: JobRow, task_ids: Sequence[int]) -> str:
    """The reference for commands: the bare id of an array would address all of its tasks, and that of the first part of
    a heterogeneous job all of its parts."""
    first = first_part(row)
    if first is not None:
        return f"{first}+{max(0, values.whole(row.job_id) - first)}"
    return tasks_ref(values.whole(row.array_job_id), task_ids) if task_ids else row.job_id


def _request(
    row: JobRow,
    excluded_nodes: str,
    site: SiteSizes,
    allocations: tuple[Allocation, ...] | None,
    requests: Requests | None,
) -> JobRequest:
    """Of a job that has nodes, what it has is enough: else an odd request would keep it from ever being a victim."""
    try:
        return shared_request(row, excluded_nodes, site, {} if requests is None else requests)
    except ParseError:
        if not allocations:
            raise
        partitions = tuple(values.names(row.partition))
        return JobRequest(values.count(row.cpus), nodes=len(allocations), partitions=partitions)


def _start(row: JobRow, state: JobState) -> float | None:
    """That of a waiting job is only expected, and that of one that was canceled while it waited is its end."""
    has_started = bool(row_nodes(row)) if state is JobState.ENDED else state is not JobState.PENDING
    return values.epoch(row.start) if has_started else None


def expected_start(row: JobRow) -> float | None:
    """When Slurm expects a waiting job to start; None if it says nothing that can be read."""
    try:
        return values.epoch(row.start)
    except ParseError:
        return None


def _hold(row: JobRow) -> Hold:
    """A pending job with priority 0 is held; the reason, which may be a list, shows who may release it."""
    if values.whole(row.priority) != 0:
        return Hold.NONE
    return Hold.ADMIN if "JobHeldAdmin" in row.reason.split(",") else Hold.USER
