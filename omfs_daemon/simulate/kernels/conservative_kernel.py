"""Conservative backfilling on a counter of CPUs: every waiting job has a reserved start."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.profile import advance
from omfs_daemon.simulate.kernels.reservations import (
    add_job,
    compress,
    give_back,
    new_reservations,
    next_due,
    next_start,
    reserve,
    take,
)
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, RunHistory, learn_run, predicted
from omfs_daemon.simulate.kernels.running import corrected_within, first_end, no_ends, pop_end, push_end


@kernel
def conservative_kernel(
    submit: Floats, cpus: Ints, run: Floats, estimate: Floats, capacity: int, compressing: bool, history: RunHistory
) -> tuple[Floats, Floats]:
    """When each job starts, and when it was first promised to start. Every job needs at most ``capacity`` CPUs.
    Estimates that are learned are written to ``estimate``.

    ``compressing``: when a job ends before it was expected to, waiting jobs move up.
    """
    count = len(submit)
    start, promised = np.full(count, np.nan), np.full(count, np.nan)
    expected_end = np.full(count, np.inf)
    ends, overdue = no_ends(count + 1), no_ends(count + 1)
    reservations = new_reservations(capacity, count)
    for job in range(count):
        add_job(reservations, job, cpus[job], estimate[job], job)
    arrived = 0
    while True:
        now = min(first_end(ends), first_end(overdue), next_start(reservations))
        if arrived < count:
            now = min(now, submit[arrived])
        if now == np.inf:
            return start, promised
        advance(reservations.profile, now)
        while first_end(ends) <= now:
            job = pop_end(ends)
            give_back(reservations, now, expected_end[job], cpus[job])
            learn_run(history, job, run[job])
        while first_end(overdue) <= now:
            job = pop_end(overdue)
            if start[job] + run[job] > now:
                expected_end[job] = corrected_within(start[job], estimate[job], history.limit[job], now)
                take(reservations, now, expected_end[job], cpus[job], now)
                push_end(overdue, expected_end[job], job)
        if compressing:
            compress(reservations, now)
        while arrived < count and submit[arrived] <= now:
            if history.rule != NOT_LEARNED:
                estimate[arrived] = predicted(history, arrived)
                add_job(reservations, arrived, cpus[arrived], estimate[arrived], arrived)
            promised[arrived] = reserve(reservations, arrived, now)
            arrived += 1
        job = next_due(reservations, now)
        while job >= 0:
            start[job] = now
            expected_end[job] = now + estimate[job]
            push_end(ends, now + run[job], job)
            if run[job] > estimate[job]:
                push_end(overdue, expected_end[job], job)
            job = next_due(reservations, now)
