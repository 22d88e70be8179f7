"""One job as squeue prints it: the fields, the format that asks for them, and what a row says by itself."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.releases import SlurmRelease

_SHOWN = 160


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


def job_format(secret: str, release: SlurmRelease) -> str:
    """The format for ``squeue -O`` (or SQUEUE_FORMAT2) that ``JobRows`` reads."""
    return ",".join(f"{name}:{secret}" for name in _SQUEUE_NAMES).format(sharing=release.sharing_field)


def excluded_format(secret: str) -> str:
    """The format for ``squeue -o`` that ``excluded`` reads; -O knows no field for the excluded nodes."""
    return f"%A{secret}%x{secret}"


def first_part(row: JobRow) -> int | None:
    """The id of the first part of the heterogeneous job of which this is a part; None if it is none."""
    found = row.het_job_id
    return int(found) if found.isascii() and found.isdecimal() and int(found) else None


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
