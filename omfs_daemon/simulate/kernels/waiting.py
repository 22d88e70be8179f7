"""The waiting jobs in order of the queue, in blocks that know their smallest members, so that a search for a job that
fits passes over whole blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import part

BLOCK = 64
GONE = -1
NEVER_CPUS = np.iinfo(np.int64).max


class WaitingQueue(NamedTuple):
    """Slots in order; a job that leaves only marks its slot, and ``pack`` closes the gaps.

    job, cpus, estimate   one entry a slot; job ``GONE``: the slot is empty
    least_cpus, least_estimate  one entry a block of ``BLOCK`` slots: at most those of any job in it
    first, end, alive     one entry each: the first slot that may hold a job, the slot after the last one, and the
                          number of jobs
    """

    job: Ints
    cpus: Ints
    estimate: Floats
    least_cpus: Ints
    least_estimate: Floats
    first: Ints
    end: Ints
    alive: Ints


@part
def empty_queue(capacity: int) -> WaitingQueue:
    """A queue that so many jobs can be added to in all."""
    blocks = capacity // BLOCK + 1
    return WaitingQueue(
        np.full(capacity, GONE, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity),
        np.full(blocks, NEVER_CPUS, np.int64),
        np.full(blocks, np.inf),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )


@part
def enqueue(queue: WaitingQueue, job: int, cpus: int, estimate: float) -> None:
    """At the end of the queue."""
    slot = queue.end[0]
    queue.end[0] += 1
    queue.alive[0] += 1
    _put(queue, slot, job, cpus, estimate)


@part
def dequeue(queue: WaitingQueue, slot: int) -> None:
    """The job in this slot leaves; all others keep their slots."""
    queue.job[slot] = GONE
    queue.alive[0] -= 1
    while queue.first[0] < queue.end[0] and queue.job[queue.first[0]] == GONE:
        queue.first[0] += 1
    block = slot // BLOCK
    if queue.cpus[slot] == queue.least_cpus[block] or queue.estimate[slot] == queue.least_estimate[block]:
        _measure(queue, block)


@part
def pack(queue: WaitingQueue) -> None:
    """Close the gaps if they are more than the jobs; slots that were known before mean nothing then."""
    span = queue.end[0] - queue.first[0]
    if span <= 2 * queue.alive[0] + BLOCK:
        return
    first, end = queue.first[0], queue.end[0]
    queue.least_cpus[: end // BLOCK + 1] = NEVER_CPUS
    queue.least_estimate[: end // BLOCK + 1] = np.inf
    kept = 0
    for slot in range(first, end):
        if queue.job[slot] != GONE:
            _put(queue, kept, queue.job[slot], queue.cpus[slot], queue.estimate[slot])
            kept += 1
    queue.first[0] = 0
    queue.end[0] = kept


@part
def next_fitting(queue: WaitingQueue, slot: int, free: int, spare: int, now: float, by: float) -> int:
    """The first slot from this one on whose job needs at most ``free`` CPUs and either ends by then, if it starts now
    and its estimate holds, or needs at most ``spare``; the end of the queue if there is none. All times in seconds."""
    end = int(queue.end[0])
    if free <= 0:
        return end
    while slot < end:
        block = slot // BLOCK
        least = queue.least_cpus[block]
        behind = min((block + 1) * BLOCK, end)
        if least > free or (least > spare and now + queue.least_estimate[block] > by):
            slot = behind
            continue
        while slot < behind:
            cpus = queue.cpus[slot]
            if cpus <= free and queue.job[slot] != GONE and (cpus <= spare or now + queue.estimate[slot] <= by):
                return slot
            slot += 1
    return end


@part
def _put(queue: WaitingQueue, slot: int, job: int, cpus: int, estimate: float) -> None:
    queue.job[slot] = job
    queue.cpus[slot] = cpus
    queue.estimate[slot] = estimate
    block = slot // BLOCK
    queue.least_cpus[block] = min(queue.least_cpus[block], cpus)
    queue.least_estimate[block] = min(queue.least_estimate[block], estimate)


@part
def _measure(queue: WaitingQueue, block: int) -> None:
    least_cpus, least_estimate = NEVER_CPUS, np.inf
    for slot in range(block * BLOCK, min((block + 1) * BLOCK, queue.end[0])):
        if queue.job[slot] != GONE:
            least_cpus = min(least_cpus, queue.cpus[slot])
            least_estimate = min(least_estimate, queue.estimate[slot])
    queue.least_cpus[block] = least_cpus
    queue.least_estimate[block] = least_estimate
