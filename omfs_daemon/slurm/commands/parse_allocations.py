"""Where a job's CPUs and memory are, node by node, from ``scontrol -o -d show job``. Pure.

scontrol prints ``Key=Value`` text into which users write their own (JobName, Account before the lines that matter),
so the reader walks over exactly the name and account that squeue gave, whose text cannot be forged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from omfs_daemon.cluster.jobs import Share
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.parse_jobs import JobRow
from omfs_daemon.slurm.releases import AFTER_JOB_NAME

_START = re.compile(r"^JobId=(\d+) (?:Array\S+ )*(?:HetJob\S+ )*JobName=", re.MULTILINE)
_PART = re.compile(r"(?<= )Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) ")


def simple(row: JobRow, memory_counts: bool) -> tuple[Share, ...]:
    """The shares of a job that runs on one node, or an even spread over its nodes when no more is known."""
    names = values.nodes(row.node_list)
    if not names:
        return ()
    cpus = values.whole(row.cpus)
    memory = values.memory(values.tres(row.tres).get("mem", "0")) if memory_counts else 0
    extra = cpus % len(names)
    return tuple(
        Share(name, cpus // len(names) + (position < extra), memory // len(names))
        for position, name in enumerate(names)
    )


def exact(printed: str, row: JobRow, memory_counts: bool) -> tuple[Share, ...] | None:
    """The shares in what scontrol printed about the job of ``row`` (among others, maybe).

    None if the text has no record of the job, more than one (then somebody forged one: ask for this job alone), or
    one that does not agree with the row (it changed meanwhile).
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
    shares = tuple(_parts(rest.partition(" MinCPUsNode=")[0], memory_counts))
    agrees = {share.node for share in shares} == set(values.nodes(row.node_list))
    return shares if agrees and sum(share.cpus for share in shares) == values.whole(row.cpus) else None


def _parts(text: str, memory_counts: bool) -> Iterator[Share]:
    for names, cpus, memory in _PART.findall(text):
        count = len(values.tasks(cpus))
        if not count:
            raise ParseError(f"scontrol show job: not a list of CPUs: {cpus[:80]!r}")
        for name in values.nodes(names):
            yield Share(name, count, values.memory(memory) if memory_counts else 0)
