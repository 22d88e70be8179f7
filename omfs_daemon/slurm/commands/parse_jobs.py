"""Parse what Slurm's commands print about jobs. Pure and strict.

Jobs come from ``squeue -O field:suffix`` (squeue(1): with a suffix and no size, a field is printed in full). Users
write newlines and anything else into names and comments, so the suffix is a secret of each call and the text is split
on that alone. ParseError quotes what could not be parsed. But a row with a field that cannot be read concerns its job
alone, which is set aside: else a user could stop the daemon with one odd request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import ceil, inf
from operator import attrgetter
from typing import NamedTuple, TypeVar

from omfs_daemon.cluster.job_refs import tasks_ref
from omfs_daemon.cluster.jobs import MOST_LOCAL_ID, Allocation, Hold, Job, JobRequest, JobState
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.releases import SlurmRelease

_COMMENT_KEPT = 1024  # Slurm's own limit of a comment
_NAME_KEPT = 128
_SHOWN = 160
_NO_UID = -1
_NO_REQUEST = JobRequest(cpus=0)

# In a list of dependencies; what is fulfilled Slurm takes off the list.
UNFULFILLED, FAILED = "(unfulfilled)", "(failed)"
SINGLETON = "singleton"

_CPU = "cpu"  # of tres-per-task

Value = TypeVar("Value")
Requests = dict[Hashable, JobRequest]
"""Requests by the text of which they were made, and by themselves: equal ones are one object."""


class JobRow(NamedTuple):
    """One job as squeue 22.05 prints it, field by field; the order is that of ``_SQUEUE_NAMES``."""

    job_id: str
    array_job_id: str
    array_task_id: str
    het_job_id: str
    state: str
    reason: str
    partition: str
    user: str
    uid: str
    account: str
    qos: str
    tres: str
    cpus: str
    tasks: str
    min_cpus: str
    nodes: str
    max_nodes: str
    min_memory: str
    tres_per_job: str
    tres_per_node: str
    tres_per_socket: str
    tres_per_task: str
    tasks_per_node: str
    cpus_per_tres: str
    over_subscribe: str
    features: str
    licenses: str
    required_nodes: str
    node_list: str
    priority: str
    nice: str
    submit: str
    eligible: str
    dependency: str
    reservation: str
    start: str
    time_used: str
    time_limit: str
    deadline: str
    restarts: str
    requeue: str
    batch: str
    name: str
    comment: str
    admin_comment: str


# Requeue and admin_comment: squeue of 22.05 knows the second although its manual does not. Licenses: what the job asked
# for, which is what it holds; releases that take alternatives ("a|b") show what was chosen as LicensesAlloc.
_SQUEUE_NAMES = (
    *(
        "JobID",
        "ArrayJobID",
        "ArrayTaskID",
        "HetJobID",
        "State",
        "Reason",
        "Partition",
        "UserName",
        "UserID",
        "Account",
        "QOS",
    ),
    *("tres-alloc", "NumCPUs", "NumTasks", "MinCpus", "NumNodes", "MaxNodes", "MinMemory"),
    *("tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task", "NTPerNode", "cpus-per-tres"),
    *("{sharing}", "Feature", "Licenses", "ReqNodes", "NodeList", "PriorityLong", "Nice", "SubmitTime"),
    *("EligibleTime", "Dependency", "Reservation", "StartTime", "TimeUsed", "TimeLimit", "Deadline", "RestartCnt"),
    *("Requeue", "BatchFlag", "Name", "Comment", "admin_comment"),
)

# squeue(1), JOB STATE CODES; a job that holds no resources any more has ENDED, one that may still hold some has not.
_STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"), JobState.PENDING),
    **dict.fromkeys(("SPECIAL_EXIT", "EXPEDITING"), JobState.PENDING),
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE"), JobState.CONFIGURING),
    # STOPPED: by SIGSTOP, but it keeps its CPUs, in contrast to SUSPENDED.
    **dict.fromkeys(("RUNNING", "RESIZING", "SIGNALING", "STOPPED"), JobState.RUNNING),
    "SUSPENDED": JobState.SUSPENDED,
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), JobState.COMPLETING),
    **dict.fromkeys(("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED"), JobState.ENDED),
    **dict.fromkeys(("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"), JobState.ENDED),
    **dict.fromkeys(("RECONFIG_FAIL", "REVOKED", "UPDATE_DB"), JobState.ENDED),
}


# What a request does not depend on; the other fields may be the same for many jobs.
_NOT_REQUESTED = {
    *("job_id", "array_job_id", "array_task_id", "het_job_id", "reason", "user", "uid", "account", "qos", "licenses"),
    *("node_list", "priority", "nice", "submit", "eligible", "dependency", "reservation", "start", "time_used"),
    *("time_limit", "deadline", "restarts", "requeue", "batch", "name", "comment", "admin_comment"),
}
_requested = attrgetter(*(name for name in JobRow._fields if name not in _NOT_REQUESTED))


def job_format(secret: str, release: SlurmRelease) -> str:
    """The format for ``squeue -O`` (or SQUEUE_FORMAT2) that ``JobRows`` reads."""
    return ",".join(f"{name}:{secret}" for name in _SQUEUE_NAMES).format(sharing=release.sharing_field)


def excluded_format(secret: str) -> str:
    """The format for ``squeue -o`` that ``excluded`` reads; -O knows no field for the excluded nodes."""
    return f"%A{secret}%x{secret}"


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
    memory_counts: bool,
    allocations: tuple[Allocation, ...] | None,
    requests: Requests | None = None,
) -> Job:
    """The job of a row; ParseError only if it has no id. ``requests``: those of other jobs, to be shared.

    ``memory_counts``: Slurm allocates memory (SelectTypeParameters with MEMORY). ``allocations``: None if they cannot
    be read. While a job is held, its reason names nothing but the hold, so ``eligible`` shows what else it waits for:
    its begin time, infinity while a dependency is unfulfilled, None if Slurm has not considered it yet or it waits for
    nothing else.
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
        request=read(
            _NO_REQUEST, _shared_request, row, excluded_nodes, memory_counts, {} if requests is None else requests
        ),
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
        comment=values.text(row.comment)[:_COMMENT_KEPT],
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


def first_part(row: JobRow) -> int | None:
    """The id of the first part of the heterogeneous job of which this is a part; None if it is none."""
    found = row.het_job_id
    return int(found) if found.isascii() and found.isdecimal() and int(found) else None


def whole_nodes(row: JobRow) -> tuple[Allocation, ...]:
    """The nodes of a job of which nothing more can be read."""
    return tuple(Allocation(name, 0, 0) for name in row_nodes(row))


def row_nodes(row: JobRow) -> tuple[str, ...]:
    """The nodes of a job; none if they cannot be read."""
    try:
        return values.node_names(row.node_list)
    except ParseError:
        return ()


def row_state(row: JobRow) -> JobState:
    """The state of a job; if it cannot be read, a job with nodes counts as running."""
    return _STATES.get(row.state) or (JobState.RUNNING if row_nodes(row) else JobState.PENDING)


def row_tasks(row: JobRow) -> tuple[int, ...]:
    """The tasks of an array; none if they cannot be read."""
    try:
        return values.tasks(row.array_task_id)
    except ParseError:
        return ()


def job_state(name: str) -> JobState:
    """The state with Slurm's name; ParseError for one that squeue(1) does not list."""
    try:
        return _STATES[name]
    except KeyError:
        raise ParseError(f"not a state of a job: {name[:_SHOWN]!r}") from None


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


def _shared_request(row: JobRow, excluded_nodes: str, memory_counts: bool, known: Requests) -> JobRequest:
    key = (excluded_nodes, memory_counts, _requested(row))
    found = known.get(key)
    if found is None:
        request = _request(row, excluded_nodes, memory_counts)
        found = known[key] = known.setdefault(request, request)
    return found


def _request(row: JobRow, excluded_nodes: str, memory_counts: bool) -> JobRequest:
    allocated = values.tres(row.tres)
    shown = values.count(row.cpus)
    node_count, most = _node_counts(row, allocated)
    per_cpu, per_node = _memory(row, allocated, shown, node_count) if memory_counts else (0, 0)
    if row_state(row) is JobState.PENDING:  # it gets CPUs on all of these, which Slurm counts only once it runs
        node_count = max(node_count, len(values.node_set(row.required_nodes)), values.nodes_with_features(row.features))
    gres = _gres(row, node_count)
    cpus, per_node_cpus = _cpus(row, shown, node_count, gres)
    return JobRequest(
        cpus=cpus,
        nodes=node_count,
        max_nodes=most and max(most, node_count),
        min_cpus_per_node=per_node_cpus,
        memory_per_cpu=per_cpu,
        memory_per_node=per_node,
        gres=values.pairs(gres),
        features=values.text(row.features),
        # OK and YES share nodes; USER and MCS do so with some jobs only, which is not modeled.
        exclusive=row.over_subscribe not in ("OK", "YES"),
        partitions=tuple(values.names(row.partition)),
        required_nodes=values.node_set(row.required_nodes),
        excluded_nodes=values.node_set(excluded_nodes),
    )


def _node_counts(row: JobRow, allocated: dict[str, str]) -> tuple[int, int]:
    """The least and the most nodes.

    While a job waits, squeue raises NumNodes to what it takes at the largest node's size, while the TRES hold the
    job's own least number; a MaxNodes that equals the raised number is not the user's either.
    """
    shown, most = values.count(row.nodes), values.count(row.max_nodes)
    least = max(1, values.count(allocated.get("node", row.nodes)))
    tasks_per_node = values.count(values.text(row.tasks_per_node) or "0")
    if tasks_per_node:
        least = max(least, ceil(values.count(row.tasks) / tasks_per_node))
    return least, 0 if least < shown == most else most


def _cpus(row: JobRow, shown: int, node_count: int, gres: dict[str, int]) -> tuple[int, int]:
    """(in all, at least on each node). Until a job starts, NumCPUs lacks what follows from its nodes, --mincpus, and
    --cpus-per-gpu."""
    each = values.gres(row.cpus_per_tres)
    per_task = values.gres(row.tres_per_task).get(_CPU, 1)
    for_gres = sum(number * gres.get(name, 0) for name, number in each.items())
    per_node = max(1, values.count(row.min_cpus), per_task, for_gres)
    if row_state(row) is not JobState.PENDING:
        return shown, per_node
    return max(shown, node_count * per_node), per_node


def _memory(row: JobRow, allocated: dict[str, str], cpus: int, node_count: int) -> tuple[int, int]:
    """(per CPU, per node). MinMemory does not show which it is, but the total does; 0 means all of a node's memory."""
    least = values.memory(row.min_memory)
    total = values.memory(allocated["mem"]) if "mem" in allocated else 0
    if least and total == least * cpus:
        return least, 0
    if least and (total == least * node_count or not total):
        return 0, least
    return 0, ceil(total / node_count)


def _gres(row: JobRow, node_count: int) -> dict[str, int]:
    """Per node; for requests by job or by task, the largest count on any node. What is asked for in several ways, as
    GPUs by job and by node, is limited by the first of these; of types, each counts."""
    by_job = {name: ceil(count / node_count) for name, count in values.gres(row.tres_per_job).items()}
    by_task = values.gres(row.tres_per_task, ceil(values.whole(row.tasks) / node_count))
    # Since 23.11 --cpus-per-task is among them, later licenses are, too ("license/fluent").
    by_task = {name: count for name, count in by_task.items() if name != _CPU and "/" not in name}
    counts: dict[str, int] = {}
    for asked in (values.gres(row.tres_per_node), by_job, values.gres(row.tres_per_socket), by_task):
        counts |= {name: count for name, count in asked.items() if not counts.get(name)}
    typed = Counter[str]()
    for name, count in counts.items():
        if ":" in name:
            typed[name.partition(":")[0]] += count
    return counts | {name: max(count, counts[name]) for name, count in typed.items()}
