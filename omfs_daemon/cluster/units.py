"""CPUs and devices one by one, and which jobs keep a suspended job from being resumed.

Slurm gives the CPUs of a suspended job to others, and resumes it over them all the same. It may have enough idle CPUs
on its nodes, then, and yet share its own with another job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job

SUSPENDED_BEFORE = 2.0
"""Seconds that a job has existed longer than run, from which it counts as suspended before: Slurm's are whole."""


class Unit(NamedTuple):
    """One CPU or device of a node. ``kind``: "cpu", or the name of a generic resource; ``number``: as Slurm counts
    (CPU_IDs and IDX in ``scontrol --details show job``)."""

    node: str
    kind: str
    number: int


Units = frozenset[Unit]

CPU = "cpu"


class ResumeBlocks(NamedTuple):
    """Which suspended jobs cannot be resumed, as references.

    by_job   while this job has its CPUs, by its raw id: it has CPUs or devices of theirs, or may have
    by_node  while a job is about to start on this node: it might get theirs
    """

    by_job: Mapping[int, frozenset[str]] = {}
    by_node: Mapping[str, frozenset[str]] = {}


def resume_blocks(
    suspended: Sequence[Job], others: Iterable[Job], units: Mapping[int, Units], taken: float
) -> ResumeBlocks:
    """Between these suspended jobs and others that are on nodes. ``units``: by raw id, as far as they could be read;
    ``taken``: when the jobs were observed."""
    here: dict[str, list[Job]] = {}
    for job in suspended:
        for node in job.on_nodes:
            here.setdefault(node, []).append(job)
    by_job: dict[int, frozenset[str]] = {}
    for other in others if here else ():
        near = {job.id: job for node in other.on_nodes for job in here.get(node, ())}
        near.pop(other.id, None)
        blocked = [job.ref for job in near.values() if _is_in_the_way(other, job, units, taken)]
        if blocked:
            by_job[other.id] = frozenset(blocked)
    return ResumeBlocks(by_job, {node: frozenset(job.ref for job in jobs) for node, jobs in here.items()})


def _is_in_the_way(other: Job, job: Job, units: Mapping[int, Units], taken: float) -> bool:
    """Where units cannot be read, jobs that have run without a break since before the suspension have others: Slurm
    had placed them beside it."""
    mine, theirs = units.get(job.id), units.get(other.id)
    if mine is not None and theirs is not None:
        return not mine.isdisjoint(theirs)
    if other.start is None or job.start is None:
        return True
    was_suspended = taken - other.start - other.run_time > SUSPENDED_BEFORE
    # It was suspended at this time at the earliest: it has run since its start, with breaks or without.
    return was_suspended or other.start >= job.start + job.run_time
