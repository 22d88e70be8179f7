"""A job's CPUs and memory, node by node, from ``scontrol -o -d show job``. Pure.

scontrol prints ``Key=Value`` text that contains users' text (JobName and Account before the lines that matter), so the
parser skips exactly the name and account that squeue printed, which cannot be forged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.parse_jobs import JobRow
from omfs_daemon.slurm.releases import AFTER_JOB_NAME

_START = re.compile(r"^JobId=(\d+) (?:Array\S+ )*(?:HetJob\S+ )*JobName=", re.MULTILINE)
_PART = re.compile(r"(?<= )Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) ")


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


def exact(printed: str, row: JobRow, memory_counts: bool) -> tuple[Allocation, ...] | None:
    """The allocations in scontrol's output about the job of ``row`` (and perhaps other jobs).

    None if the output has no record of the job, more than one (then one is forged: query this job alone), or one that
    cannot be read or does not match the row (the job has changed).
    """
    records = [match for match in _START.finditer(printed) if match[1] == row.job_id]
    if len(records) != 1:
        return None
    rest = printed[records[0].end() :]
    if not (rest.startswith(row.name) and AFTER_JOB_NAME.match(rest, len(row.name))):
        return None
    rest = rest[len(row.name) :].partition(" Account=")[2]
    if not rest.startswith(f"{row.account} QOS="):
        return None
    rest = rest[len(row.account) :]
    rest = rest.partition(" JOB_GRES=")[2]
    try:
        allocations = tuple(_parts(rest.partition(" MinCPUsNode=")[0], memory_counts))
        shown = set(values.node_names(row.node_list)), values.count(row.cpus)
    except ParseError:
        return None
    found = {allocation.node for allocation in allocations}, sum(allocation.cpus for allocation in allocations)
    return allocations if found == shown else None


def _parts(text: str, memory_counts: bool) -> Iterator[Allocation]:
    for names, cpus, memory in _PART.findall(text):
        count = len(values.tasks(cpus))
        if not count:
            raise ParseError(f"scontrol show job: not a list of CPUs: {cpus[:80]!r}")
        for name in values.node_names(names):
            yield Allocation(name, count, values.memory(memory) if memory_counts else 0)
