"""The log of what held CPUs when: arrays that grow between two events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import part

WORK, LOST, PREEMPTION, RESUME = 0, 1, 2, 3
"""``outcome.Use``, as plain integers for compiled code."""


class Log(NamedTuple):
    """One entry a segment; ``size`` has one entry."""

    job: Ints
    begin: Floats
    end: Floats
    use: Ints
    size: Ints


@part
def new_log(capacity: int) -> Log:
    """Nothing logged yet."""
    return Log(
        np.empty(capacity, np.int64),
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity, np.int64),
        np.zeros(1, np.int64),
    )


@part
def with_room(log: Log, needed: int) -> Log:
    """The same log with room for so many segments more."""
    count = log.size[0]
    if count + needed <= len(log.job):
        return log
    larger = new_log(2 * (count + needed))
    larger.job[:count], larger.begin[:count] = log.job[:count], log.begin[:count]
    larger.end[:count], larger.use[:count] = log.end[:count], log.use[:count]
    larger.size[0] = count
    return larger


@part
def log_segment(log: Log, job: int, begin: float, end: float, use: int) -> None:
    """A segment; one of no length is none."""
    if begin < end:
        at = log.size[0]
        log.job[at], log.begin[at], log.end[at], log.use[at] = job, begin, end, use
        log.size[0] += 1
