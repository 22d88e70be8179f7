"""First come, first served without backfilling, where wide jobs count as if they had waited longer."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.running import first_end, no_ends, pop_end, push_end


@kernel
def size_first_kernel(submit: Floats, cpus: Ints, run: Floats, ahead: Floats, capacity: int) -> Floats:
    """Start of each job in seconds; each needs at most ``capacity`` CPUs.

    ahead  seconds that each counts as having waited when it comes. Of the jobs that wait, only the one that has waited
           longest can start; it holds all others until its CPUs are free.
    """
    count = len(submit)
    start = np.full(count, np.nan)
    ends = no_ends(count + 1)
    queue = [(np.inf, count)]
    free, arrived, now = capacity, 0, -np.inf
    while arrived < count or len(queue) > 1:
        now = max(now, submit[arrived]) if len(queue) == 1 else now
        while arrived < count and submit[arrived] <= now:
            heappush(queue, (submit[arrived] - ahead[arrived], arrived))
            arrived += 1
        while first_end(ends) <= now:
            free += cpus[pop_end(ends)]
        head = queue[0][1]
        if cpus[head] <= free:
            heappop(queue)
            start[head] = now
            free -= cpus[head]
            push_end(ends, now + run[head], head)
        else:
            # A job that comes before the next end may go before the head.
            now = first_end(ends) if arrived == count else min(first_end(ends), submit[arrived])
    return start
