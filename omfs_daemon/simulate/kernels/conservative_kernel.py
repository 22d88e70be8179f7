"""Conservative backfilling on a counter of CPUs: every waiting job has a reserved start."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.profile import advance
from omfs_daemon.simulate.kernels.reservations import compress
from omfs_daemon.simulate.kernels.reservations import enter
from omfs_daemon.simulate.kernels.reservations import give_back
from omfs_daemon.simulate.kernels.reservations import new_book
from omfs_daemon.simulate.kernels.reservations import next_due
from omfs_daemon.simulate.kernels.reservations import next_start
from omfs_daemon.simulate.kernels.reservations import reserve
from omfs_daemon.simulate.kernels.reservations import take
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.kernels.running import first_end
from omfs_daemon.simulate.kernels.running import no_ends
from omfs_daemon.simulate.kernels.running import pop_end
from omfs_daemon.simulate.kernels.running import push_end
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints


@kernel
def conservative(
    submit: Floats, cpus: Ints, run: Floats, estimate: Floats, machine: int, compressing: bool
) -> tuple[Floats, Floats]:
    """When each job starts, and when it was first promised to start; nan for those wider than the machine.

    ``compressing``: when a job ends before it was expected to, waiting jobs move up.
    """
    count = len(submit)
    start, promised = np.full(count, np.nan), np.full(count, np.nan)
    expected_end = np.full(count, np.inf)
    ends, overdue = no_ends(count + 1), no_ends(count + 1)
    book = new_book(machine, count)
    for job in range(count):
        enter(book, job, cpus[job], estimate[job], job)
    arrived = 0
    while True:
        now = min(first_end(ends), first_end(overdue), next_start(book))
        if arrived < count:
            now = min(now, submit[arrived])
        if now == np.inf:
            return start, promised
        advance(book.profile, now)
        while first_end(ends) <= now:
            job = pop_end(ends)
            give_back(book, now, expected_end[job], cpus[job])
        while first_end(overdue) <= now:
            job = pop_end(overdue)
            if start[job] + run[job] > now:
                expected_end[job] = corrected(start[job], estimate[job], now)
                take(book, now, expected_end[job], cpus[job], now)
                push_end(overdue, expected_end[job], job)
        if compressing:
            compress(book, now)
        while arrived < count and submit[arrived] <= now:
            if cpus[arrived] <= machine:
                promised[arrived] = reserve(book, arrived, now)
            arrived += 1
        job = next_due(book, now)
        while job >= 0:
            start[job] = now
            expected_end[job] = now + estimate[job]
            push_end(ends, now + run[job], job)
            if run[job] > estimate[job]:
                push_end(overdue, expected_end[job], job)
            job = next_due(book, now)
