"""Conservative backfilling into given free CPUs before a given start (Yoon et al. 2020, Algorithm 1 and Appendix A)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.profile import earliest, free_at, profile_of, shift


@kernel
def fill_hole(
    time: Floats, free: Ints, start: float, submit: Floats, cpus: Ints, seconds: Floats
) -> tuple[Floats, Bools, Ints]:
    """For each job in the order of the queue: its first fit (inf: never), whether it is accepted, and the CPUs that
    are free when it comes.

    time, free  stamps, ascending, ``start`` among them, and the CPUs free from each to the next
    start       when the job starts for which the hole is kept: no accepted job ends later

    A job starts at its submission or at a stamp. It is booked in every interval between stamps that it meets.
    """
    profile = profile_of(time, free)
    count = len(submit)
    first_fit, accepted, at_submit = np.full(count, np.inf), np.zeros(count, np.bool_), np.zeros(count, np.int64)
    for job in range(count):
        begin = max(submit[job], time[0])
        at_submit[job] = free_at(profile, begin)
        fit = earliest(profile, cpus[job], seconds[job], begin, np.inf, np.inf)
        first_fit[job] = fit
        end = fit + seconds[job]
        if end <= start:
            accepted[job] = True
            shift(profile, fit, end, -cpus[job])
    return first_fit, accepted, at_submit
