"""EASY backfilling, and first fit, which is EASY without its reservation."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, RunHistory, learn_run, predicted
from omfs_daemon.simulate.kernels.running import (
    correct_expected,
    expect,
    expect_no_more,
    first_end,
    no_ends,
    nothing_expected,
    pop_end,
    push_end,
    reservation,
)
from omfs_daemon.simulate.kernels.waiting import dequeue, empty_queue, enqueue, next_fitting, pack

NOBODY = -1


@kernel
def easy_kernel(
    submit: Floats, cpus: Ints, run: Floats, estimate: Floats, capacity: int, reserving: bool, history: RunHistory
) -> tuple[Floats, Floats]:
    """Start of each job, and when it was first promised to start as head of the queue (nan: it never was), in seconds.
    Every job needs at most ``capacity`` CPUs. Without ``reserving`` whatever fits starts, and nothing is promised.
    Estimates that are learned are written to ``estimate``.

    A scheduling pass goes through the queue in order: jobs start until one, the head, does not fit; it gets a
    reservation; of the others those start that do not delay it. What a pass refused stays refused while no job ends
    and no expected end is put off: meanwhile free and spare CPUs can only have become fewer, the reservation stands (a
    job that started behind the head was counted in it), and "starts now and ends by the shadow time" only becomes
    false with time. So the last pass then goes on with the jobs that have come since; otherwise a new one begins.
    """
    count = len(submit)
    start, promised = np.full(count, np.nan), np.full(count, np.nan)
    expected_end = np.empty(count)
    ends, expected, queue = no_ends(count), nothing_expected(count), empty_queue(count)
    free = capacity
    head, shadow, spare, slot = NOBODY, np.inf, capacity, 0
    arrived = 0
    while arrived < count or queue.alive[0] > 0:
        now = min(first_end(ends), submit[arrived] if arrived < count else np.inf)
        afresh = False
        while first_end(ends) <= now:
            job = pop_end(ends)
            expect_no_more(expected, expected_end[job], job)
            free += cpus[job]
            learn_run(history, job, run[job])
            afresh = True
        while arrived < count and submit[arrived] <= now:
            if history.rule != NOT_LEARNED:
                estimate[arrived] = predicted(history, arrived)
            enqueue(queue, arrived, cpus[arrived], estimate[arrived])
            arrived += 1
        if correct_expected(expected, expected_end, start, estimate, history.limit, now) or afresh:
            pack(queue)
            head, shadow, spare, slot = NOBODY, np.inf, capacity, queue.first[0]
        while True:
            # Until there is a head, the next job is considered even if it does not fit: it may be the head.
            most = capacity if reserving and head == NOBODY else free
            slot = next_fitting(queue, slot, most, spare, now, shadow)
            if slot == queue.end[0]:
                break
            job = queue.job[slot]
            if cpus[job] <= free:
                start[job] = now
                free -= cpus[job]
                expected_end[job] = now + estimate[job]
                push_end(ends, now + run[job], job)
                expect(expected, expected_end[job], job)
                if expected_end[job] > shadow:
                    spare -= cpus[job]
                dequeue(queue, slot)
            else:
                head = job
                shadow, spare = reservation(expected, cpus, cpus[job], free)
                if np.isnan(promised[job]):
                    promised[job] = shadow
            slot += 1
    return start, promised
