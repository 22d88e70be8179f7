"""A job's CPUs, memory, and devices, node by node, from ``scontrol -o -d show job``. Pure.

scontrol prints ``Key=Value`` text that contains users' text (JobName and Account before the lines that matter), so the
parser skips exactly the name and account that squeue printed, which cannot be forged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Self

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.cluster.units import CPU, Unit, Units
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.squeue_fields import JobRow
from omfs_daemon.slurm.releases import AFTER_JOB_NAME

_START = re.compile(r"^JobId=(\d+) (?:Array\S+ )*(?:HetJob\S+ )*JobName=", re.MULTILINE)
_PART = re.compile(r"(?<= )Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) (?:GRES=(\S*))?")
# "gpu:a100:2(IDX:0,3),ve(CNT:1)": devices of one name are numbered together; those without a file have no numbers.
_DEVICES = re.compile(r"(\w+)(?::[\w.-]+)*\(IDX:([\d,-]+)\)", re.ASCII)


class Details(NamedTuple):
    """What scontrol printed about jobs, and where the records of each begin, by job id, after ``JobName=``."""

    printed: str
    starts: dict[str, list[int]]

    @classmethod
    def of(cls, printed: str) -> Self:
        starts: dict[str, list[int]] = {}
        for match in _START.finditer(printed):
            starts.setdefault(match[1], []).append(match.end())
        return cls(printed, starts)

    @classmethod
    def of_one(cls, printed: str) -> Self:
        """About one job: its own record comes before all that is forged in its name or comment."""
        return cls(printed, {job_id: starts[:1] for job_id, starts in cls.of(printed).starts.items()})


def simple(row: JobRow, memory_counts: bool) -> tuple[Allocation, ...] | None:
    """The allocation of a job on one node, or an even spread over its nodes when no more is known; None if the row
    cannot be read."""
    try:
        names, cpus = values.node_names(row.node_list), values.count(row.cpus)
        memory = values.memory(values.tres(row.tres).get("mem", "0")) if memory_counts else 0
    except ParseError:
        return None
    if not names:
        return ()
    extra = cpus % len(names)
    return tuple(
        Allocation(name, cpus // len(names) + (position < extra), memory // len(names))
        for position, name in enumerate(names)
    )


def exact(details: Details, row: JobRow, memory_counts: bool) -> tuple[Allocation, ...] | None:
    """The allocations in scontrol's output about the job of ``row`` (and perhaps other jobs).

    None if the output has no record of the job, more than one (then one is forged: query this job alone), or one that
    cannot be read or does not match the row (the job has changed).
    """
    text = _details_of(details, row)
    if text is None:
        return None
    try:
        allocations = tuple(_parts(text, memory_counts))
        shown = set(values.node_names(row.node_list)), values.count(row.cpus)
    except ParseError:
        return None
    found = {allocation.node for allocation in allocations}, sum(allocation.cpus for allocation in allocations)
    return allocations if found == shown else None


def job_units(details: Details, row: JobRow) -> Units | None:
    """The CPUs and devices that the job of ``row`` has, from the same output; None as for ``exact``."""
    text = _details_of(details, row)
    if text is None:
        return None
    try:
        found = frozenset(_units(text))
        shown = set(values.node_names(row.node_list))
    except ParseError:
        return None
    return found if {unit.node for unit in found} == shown else None


def _details_of(details: Details, row: JobRow) -> str | None:
    """What scontrol printed about the nodes of one job; None if there is no record of the job, or more than one."""
    printed, starts = details.printed, details.starts.get(row.job_id, ())
    if len(starts) != 1:
        return None
    at = starts[0] + len(row.name)
    if not (printed.startswith(row.name, starts[0]) and AFTER_JOB_NAME.match(printed, at)):
        return None
    account = f" Account={row.account} QOS="
    at = printed.find(" Account=", at)
    if at < 0 or not printed.startswith(account, at):
        return None
    at = printed.find(" JOB_GRES=", at + len(account))
    end = printed.find(" MinCPUsNode=", at)
    return printed[at : end if end >= 0 else None] if at >= 0 else ""


def _parts(text: str, memory_counts: bool) -> Iterator[Allocation]:
    for names, cpus, memory, _ in _PART.findall(text):
        count = len(values.tasks(cpus))
        if not count:
            raise ParseError(f"scontrol show job: not a list of CPUs: {cpus[:80]!r}")
        for name in values.node_names(names):
            yield Allocation(name, count, values.memory(memory) if memory_counts else 0)


def _units(text: str) -> Iterator[Unit]:
    for names, cpus, _, gres in _PART.findall(text):
        for kind, numbers in ((CPU, cpus), *_DEVICES.findall(gres)):
            for node in values.node_names(names):
                yield from (Unit(node, kind, number) for number in values.tasks(numbers))
