"""What recorded idle CPUs could have done for the jobs that waited beside them."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.profile import earliest, profile_of, shift


@kernel
def starts_on_idle(
    time: Floats, free: Ints, eligible: Floats, start: Floats, end: Floats, cpus: Ints, length: Floats, starts: Floats
) -> tuple[Floats, Floats, Ints]:
    """For each job, in order of eligibility: the first time before its start at which idle CPUs would have held its
    whole run; the same for ``length`` (its limit); inf: none. And how many jobs stood before it in the queue then.

    time, free  of the recorded machine: so many CPUs idle from each time to the next
    start, end  of the recorded run, whose own CPUs are free for it
    starts      all starts of ``start``, ascending

    A job is booked once, with what of its run lies before its start: the CPUs of its recorded run are not idle for
    others. Nothing that ran is delayed.
    """
    count = len(start)
    profile = profile_of(time, free)
    by_run, by_length = np.full(count, np.inf), np.full(count, np.inf)
    ahead = np.zeros(count, np.int64)
    seen = np.zeros(count + 1, np.int64)
    for job in range(count):
        if start[job] > eligible[job]:
            run = end[job] - start[job]
            shift(profile, start[job], end[job], cpus[job])
            begin = max(eligible[job], time[0])
            fit = earliest(profile, cpus[job], run, begin, start[job], np.inf)
            if fit < start[job]:
                by_run[job] = fit
                by_length[job] = earliest(profile, cpus[job], length[job], begin, start[job], np.inf)
                when = by_length[job] if by_length[job] < np.inf else fit
                at, over = int(np.searchsorted(starts, when, side="right")), 0
                while at > 0:
                    over += seen[at]
                    at -= at & -at
                ahead[job] = job - over
            shift(profile, start[job], end[job], -cpus[job])
            shift(profile, fit, min(fit + run, start[job]), -cpus[job])
        at = int(np.searchsorted(starts, start[job])) + 1
        while at <= count:
            seen[at] += 1
            at += at & -at
    return by_run, by_length, ahead


@kernel
def fill_with_preemptible(
    time: Floats, free: Ints, events: Floats, eligible: Floats, until: Floats, cpus: Ints, run: Floats
) -> tuple[Floats, Ints, Floats]:
    """Per job that waits, in the order of the queue: the seconds that it would have run on idle CPUs, how often it
    would have been stopped, and the seconds lost if a stop throws away what was done since the last start.

    events    ascending: times at which jobs can start or must stop
    eligible  ascending; ``until``: from then on the job is not part of this, whether it is done or not

    At each event jobs stop until the others fit into what is idle, the last of the queue first; then those that wait
    start where they fit.
    """
    count = len(eligible)
    done, stops, lost = np.zeros(count), np.zeros(count, np.int64), np.zeros(count)
    since = np.full(count, np.nan)
    active = np.empty(count, np.int64)
    number = arrived = used = 0
    for event in events:
        kept = 0
        for slot in range(number):
            job = active[slot]
            began = since[job]
            is_over = False
            if not np.isnan(began):
                left = run[job] - done[job]
                if began + left <= min(event, until[job]):
                    done[job] = run[job]
                    used -= cpus[job]
                    is_over = True
                elif until[job] <= event:
                    done[job] += until[job] - began
                    lost[job] += until[job] - began
                    stops[job] += 1
                    used -= cpus[job]
                    is_over = True
            elif until[job] <= event:
                is_over = True
            if is_over:
                since[job] = np.nan
            else:
                active[kept] = job
                kept += 1
        number = kept
        while arrived < count and eligible[arrived] <= event:
            if until[arrived] > event:
                active[number] = arrived
                number += 1
            arrived += 1
        at = int(np.searchsorted(time, event, side="right")) - 1
        idle = free[at] if at >= 0 else 0
        slot = number - 1
        while used > idle and slot >= 0:
            job = active[slot]
            if not np.isnan(since[job]):
                done[job] += event - since[job]
                lost[job] += event - since[job]
                stops[job] += event > since[job]
                since[job] = np.nan
                used -= cpus[job]
            slot -= 1
        room = idle - used
        slot = 0
        while room > 0 and slot < number:
            job = active[slot]
            if np.isnan(since[job]) and cpus[job] <= room:
                since[job] = event
                used += cpus[job]
                room -= cpus[job]
            slot += 1
    return done, stops, lost
