"""The CPUs of waiting jobs that use some of a core's only, where a core has several (nodes with ThreadsPerCore).

A core belongs to one job, so a job with --threads-per-core, --hint=nomultithread, or --ntasks-per-core gets more CPUs
than squeue shows of it until it runs. job_submit.lua lets no owner change these options later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.asked_apart import AskedApart
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_state

_SHOWN = 160


def core_use_format(secret: str) -> str:
    """The format for ``squeue -O`` that ``core_use`` reads."""
    return ",".join(f"{name}:{secret}" for name in ("JobID", "Threads", "NTPerCore"))


def core_use(printed: str, secret: str) -> dict[str, str]:
    """By job id the CPUs of a core that it uses, and its tasks on one, divided by a blank."""
    fields = printed.split(secret)
    if fields.pop().strip() or len(fields) % 3:
        raise ParseError(f"squeue printed a part of a job: {printed[-_SHOWN:]!r}")
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    return {job_id.lstrip("\n"): f"{threads} {tasks}" for job_id, threads, tasks in rows}


class WholeCores:
    """Counts whole cores for waiting jobs. ``asked``: as ``core_use`` reads it."""

    def __init__(self, asked: AskedApart) -> None:
        self._asked = asked
        self._threads = 1

    def note(self, nodes: Iterable[Node]) -> None:
        """The nodes of the cluster; until they are known, each core counts as one CPU."""
        self._threads = max((node.threads for node in nodes), default=1)

    def of(self, rows: list[JobRow]) -> list[JobRow]:
        """These, which are all rows."""
        return self._counted(rows, self._asked.of(rows, None)) if self._threads > 1 else rows

    def of_one(self, rows: list[JobRow]) -> list[JobRow]:
        """Those of one job."""
        if self._threads == 1 or row_state(rows[0]) is not JobState.PENDING:
            return rows
        asked = [self._asked.of_one(row.job_id) for row in rows]  # of each part, if it is heterogeneous
        return self._counted(rows, {job_id: text for one in asked for job_id, text in one.items()})

    def _counted(self, rows: Iterable[JobRow], asked: Mapping[str, str]) -> list[JobRow]:
        return [with_whole_cores(row, asked.get(row.job_id, ""), self._threads) for row in rows]


def with_whole_cores(row: JobRow, asked: str, threads: int) -> JobRow:
    """The row of a job with the CPUs of whole cores of so many ``threads``. What cannot be read is left to who reads
    the row."""
    if not asked or row_state(row) is not JobState.PENDING:
        return row
    try:
        together = _together(row, *asked.split(" ", 1))
        if not together:
            return row
        cores = ceil(together / threads) * threads
        total, on_node = (ceil(values.count(shown) / together) * cores for shown in (row.cpus, row.min_cpus))
    except ParseError:
        return row
    return row._replace(cpus=str(total), min_cpus=str(on_node))


def _together(row: JobRow, threads: str, tasks: str) -> int:
    """How many of its CPUs share cores with each other alone; 0: any number."""
    by_thread, by_task = (0 if text == "*" else values.count(values.text(text) or "0") for text in (threads, tasks))
    per_task = ceil(values.count(row.cpus) / max(1, values.count(row.tasks)))
    return min((number for number in (by_thread, by_task * per_task) if number), default=0)
