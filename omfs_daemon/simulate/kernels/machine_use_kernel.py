"""What a recorded machine was doing at each change: cores used, and what waited beside idle ones."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Cores, Floats, Ints, SmallInts
from omfs_daemon.simulate.kernels.compiling import kernel, part

SUBMITTED, HELD, ELIGIBLE, STARTED, GONE, ENDED, DOWN, CAPACITY = range(8)
"""Events: submitted and eligible at once; submitted only; eligible now; starts; ends without a start; ends; so many
cores go down (below 0: come back); so many cores there are from now on."""

AVAILABLE, USED, DOWN_CORES, WAITING, NOBODY_WAITS, DOES_NOT_FIT, KEPT_FOR_LARGE, LIMITED, DEPENDENT = range(9)
"""Rows of the result, see ``machine_states``."""


@part
def _add(tree: Ints, at: int, amount: int) -> None:
    at += 1
    while at < len(tree):
        tree[at] += amount
        at += at & -at


@part
def _sum_below(tree: Ints, at: int) -> int:
    total = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@kernel
def machine_states(
    time: Floats, event: SmallInts, cores: Cores, width: Cores, limited: SmallInts, widths: Ints, large: int
) -> tuple[Floats, Cores, Ints, int]:
    """The distinct times; nine rows of what held from each to the next: cores that there are, at least those used;
    cores used; cores down; pending jobs; idle cores by heap (``reports.machine_use``); cores of pending jobs; and the
    most cores used at a time, beyond 32 bits, too, where the rows are wrong then.

    time .. limited  one entry per event, in order of time; ``width`` is the index of a job's cores in ``widths``,
                     which ascend; ``limited`` 1: a limit held the job back
    """
    times, states, asked = np.empty(len(time)), np.empty((9, len(time)), np.int32), np.empty(len(time), np.int64)
    held = np.zeros(len(widths) + 1, np.int64)
    held_limited = np.zeros(len(widths) + 1, np.int64)
    number = np.zeros(len(widths) + 1, np.int64)
    used = gone = total = pending = waiting = eligible = count = most = 0
    for at in range(len(time)):
        kind, amount = event[at], cores[at]
        if kind in (SUBMITTED, HELD):
            pending += amount
            waiting += 1
        if kind in (SUBMITTED, ELIGIBLE):
            eligible += amount
            _add(held, width[at], amount)
            _add(held_limited, width[at], amount * limited[at])
            _add(number, width[at], 1)
        if kind in (STARTED, GONE):
            pending -= amount
            waiting -= 1
            eligible -= amount
            _add(held, width[at], -amount)
            _add(held_limited, width[at], -amount * limited[at])
            _add(number, width[at], -1)
        if kind == STARTED:
            used += amount
        elif kind == ENDED:
            used -= amount
        elif kind == DOWN:
            gone += amount
        elif kind == CAPACITY:
            total = amount
        if at + 1 < len(time) and time[at + 1] == time[at]:
            continue
        most = max(most, used)
        available = max(total, used)
        down = min(max(gone, 0), available - used)
        idle = available - used - down
        fits = int(np.searchsorted(widths, idle, side="right"))
        wider = int(np.searchsorted(widths, max(idle, large), side="right"))
        large_waits = _sum_below(number, len(widths)) > _sum_below(number, wider)
        some, by_eligible = min(idle, pending), min(idle, eligible)
        fit = _sum_below(held, fits)
        usable, freely = min(idle, fit), min(idle, fit - _sum_below(held_limited, fits))
        kept = freely if large_waits else 0
        times[count], asked[count] = time[at], pending
        states[AVAILABLE, count], states[USED, count], states[DOWN_CORES, count] = available, used, down
        states[WAITING, count] = waiting
        states[NOBODY_WAITS, count] = idle - some
        states[DOES_NOT_FIT, count] = by_eligible - usable + freely - kept
        states[KEPT_FOR_LARGE, count] = kept
        states[LIMITED, count] = usable - freely
        states[DEPENDENT, count] = some - by_eligible
        count += 1
    return times[:count], states[:, :count], asked[:count], most
