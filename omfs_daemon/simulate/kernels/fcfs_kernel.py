"""First come, first served, urgent jobs before all others."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.running import first_end, no_ends, pop_end, push_end


@kernel
def fcfs_kernel(submit: Floats, cpus: Ints, run: Floats, urgent: Ints, regular: Ints, capacity: int) -> Floats:
    """Start of each job in seconds. ``urgent`` and ``regular`` are the indices of the jobs of either queue, in order of
    submission; every job needs at most ``capacity`` CPUs.

    Only the head of the queue that is served can start, so the clock goes from one chance of a head to the next,
    not from event to event; the schedule is the same.
    """
    start = np.full(len(submit), np.nan)
    ends = no_ends(len(submit))
    free = capacity
    now = -np.inf
    next_urgent, next_regular = 0, 0
    while next_urgent < len(urgent) or next_regular < len(regular):
        urgent_comes = submit[urgent[next_urgent]] if next_urgent < len(urgent) else np.inf
        regular_comes = submit[regular[next_regular]] if next_regular < len(regular) else np.inf
        now = max(now, min(urgent_comes, regular_comes))
        while first_end(ends) <= now:
            free += cpus[pop_end(ends)]
        serves_urgent = urgent_comes <= now
        head = urgent[next_urgent] if serves_urgent else regular[next_regular]
        if cpus[head] <= free:
            start[head] = now
            free -= cpus[head]
            push_end(ends, now + run[head], head)
            next_urgent += serves_urgent
            next_regular += not serves_urgent
        else:
            now = first_end(ends) if serves_urgent else min(first_end(ends), urgent_comes)
    return start
