"""Combine what PySlurm shows of jobs with what squeue printed. Pure.

PySlurm does not show everything that a job asks for (``Jobs`` has ``--gres`` but not ``--gpus``, no TRES, and only some
kinds of dependencies). That is settled when the job is submitted, changed or started. PySlurm does show what changes
all the time. So squeue is asked for a job once, and again when PySlurm shows that something else has changed.
"""

from __future__ import annotations

from typing import Any

from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.slurm.pyslurm.pyslurm_child import UNREADABLE, PySlurmJob

_UNSIGNED = 2**32
_LONGEST = 10**9  # seconds; more is a clock that went backwards
_ALWAYS_SHOWN = (
    *("state", "state_reason", "priority", "nice", "eligible_time", "start_time", "comment", "admin_comment"),
    *("licenses", "required_nodes", "array_task_id", "array_tasks_waiting"),
)
_SHOWN = [PySlurmJob._fields.index(name) for name in _ALWAYS_SHOWN]
_SETTLED = [index for index, name in enumerate(PySlurmJob._fields) if name not in _ALWAYS_SHOWN]


def seen(values: list[Any]) -> PySlurmJob:
    """One job of an answer of ``pyslurm_child``."""
    if len(values) != len(PySlurmJob._fields) or not isinstance(values[0], int):
        raise ParseError(f"PySlurm's process did not write a job: {str(values)[:160]}")
    return PySlurmJob(*values)


def settled(job: PySlurmJob) -> list[Any]:
    """The fields that change together with those that only squeue prints."""
    return [job[index] for index in _SETTLED]


def is_readable(job: PySlurmJob) -> bool:
    """Whether PySlurm can read everything that changes all the time; else squeue must be asked in every poll."""
    return all(job[index] != UNREADABLE for index in _SHOWN)


def row_now(printed: JobRow, job: PySlurmJob, run_time: int) -> JobRow:
    """The row that squeue would print now, given the one that it did print."""
    return printed._replace(
        array_task_id="%".join((array_task(job), *printed.array_task_id.split("%")[1:])),
        state=str(job.state),
        reason=_text(job.state_reason),
        priority=str(job.priority),
        nice=str(signed(job.nice)),
        eligible=_text(job.eligible_time),
        start=_text(job.start_time),
        time_used=f"{run_time // 60}:{run_time % 60}" if 0 <= run_time < _LONGEST else "INVALID",
        comment=_text(job.comment),
        admin_comment=_text(job.admin_comment),
        licenses=",".join(job.licenses or ()),
        required_nodes=_text(job.required_nodes),
    )


def array_task(job: PySlurmJob) -> str:
    """ArrayTaskID as squeue prints it; PySlurm shows neither task 0 nor "no task", but which job is of an array."""
    if job.array_id is None:
        return "N/A"
    return _text(job.array_tasks_waiting or job.array_task_id or 0)


def signed(nice: int | None) -> int:
    """PySlurm 22.5 reads a negative nice as an unsigned number."""
    value = int(nice or 0)
    return value - _UNSIGNED if value >= _UNSIGNED // 2 else value


def excluded_nodes(job: PySlurmJob) -> str:
    """ExcNodeList; "" for none, ``UNREADABLE`` (which no list of nodes is) if PySlurm cannot read it."""
    return job.excluded_nodes or ""


def _text(value: Any) -> str:
    return "None" if value is None else str(value)
