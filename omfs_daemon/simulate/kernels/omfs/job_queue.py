"""Waiting jobs: a tree that finds the first one of at most so many CPUs, and groups of jobs that are alike."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.omfs.kernel_state import Groups

NO_JOB = np.iinfo(np.int64).max


def no_jobs(count: int) -> Ints:
    """An empty tree for so many jobs: the leaves lie in the second half, each node holds the least below it."""
    size = 1
    while size < count:
        size *= 2
    return np.full(2 * size, NO_JOB, dtype=np.int64)


@part
def set_waiting(least: Ints, job: int, cpus: int) -> None:
    """The job waits; NOBODY: it no longer does."""
    at = len(least) // 2 + job
    least[at] = cpus
    while at > 1:
        at //= 2
        known = min(least[2 * at], least[2 * at + 1])
        if least[at] == known:
            return
        least[at] = known


@part
def first_of_at_most(least: Ints, begin: int, cpus: int) -> int:
    """The first job from ``begin`` on that has at most so many CPUs; -1: none."""
    size = len(least) // 2
    if begin >= size or least[1] > cpus:
        return -1
    at = size + begin
    while least[at] > cpus:  # what lies right of here: of the nearest part that ends here
        while at % 2 == 1:
            at //= 2
        if at == 0:
            return -1
        at += 1
    while at < size:
        at = 2 * at if least[2 * at] <= cpus else 2 * at + 1
    return at - size


@part
def join(jobs: Records, groups: Groups, group: int, job: int) -> None:
    """Behind all others of its group."""
    last = groups.all[group].tail
    jobs[job].before, jobs[job].behind = last, -1
    if last < 0:
        groups.all[group].head = job
    else:
        jobs[last].behind = job
    groups.all[group].tail = job


@part
def leave(jobs: Records, groups: Groups, group: int, job: int) -> None:
    before, behind = jobs[job].before, jobs[job].behind
    if before < 0:
        groups.all[group].head = behind
    else:
        jobs[before].behind = behind
    if behind < 0:
        groups.all[group].tail = before
    else:
        jobs[behind].before = before
