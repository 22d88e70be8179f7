"""How many CPUs are free from when to when: the skyline that conservative backfilling plans in.

Intervals lie side by side in an array, in order of time; the last one never ends. An insertion moves the shorter
side, and intervals that are over leave room at the front. Blocks of intervals know their least and their greatest
free count, so that a search passes over many intervals at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import part

_SHIFT = 5
_BLOCK = 1 << _SHIFT


class Profile(NamedTuple):
    """``time[i]`` is when interval i begins, ``free[i]`` the CPUs free in it; those from ``ends[0]`` to before
    ``ends[1]`` count. ``least`` and ``most``: of free, by block of places in the array."""

    time: Floats
    free: Ints
    ends: Ints
    least: Ints
    most: Ints


@part
def new_profile(cpus: int, capacity: int) -> Profile:
    """All CPUs free at all times. ``capacity``: intervals at most."""
    length = (2 * capacity + 2 * _BLOCK) // _BLOCK * _BLOCK
    blocks = length // _BLOCK
    profile = Profile(
        np.empty(length, np.float64),
        np.empty(length, np.int64),
        np.array([length // 2, length // 2 + 1]),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
    )
    profile.time[length // 2] = -np.inf
    profile.free[length // 2] = cpus
    _sum_up(profile, length // 2, length // 2 + 1)
    return profile


@part
def profile_of(time: Floats, free: Ints) -> Profile:
    """So many CPUs free from each of these ascending times to the next, and after the last one for ever. Nothing is
    known from before the first, and changes must begin and end at these times."""
    count = len(time)
    profile = new_profile(0, count + 1)
    begin = (len(profile.time) - count) // 2
    profile.time[begin : begin + count] = time
    profile.free[begin : begin + count] = free
    profile.ends[0], profile.ends[1] = begin, begin + count
    _sum_up(profile, begin, begin + count)
    return profile


@part
def _sum_up(profile: Profile, first: int, last: int) -> None:
    """Note least and most anew for the blocks of the places from first to before last."""
    begin, end = profile.ends[0], profile.ends[1]
    for block in range(first >> _SHIFT, ((last - 1) >> _SHIFT) + 1):
        low, high = max(begin, block << _SHIFT), min(end, (block + 1) << _SHIFT)
        if low >= high:
            continue
        least = most = profile.free[low]
        for at in range(low + 1, high):
            least = min(least, profile.free[at])
            most = max(most, profile.free[at])
        profile.least[block], profile.most[block] = least, most


@part
def _find(profile: Profile, time: float) -> int:
    """The interval in which this time lies."""
    low, high = int(profile.ends[0]), int(profile.ends[1]) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if profile.time[middle] <= time:
            low = middle
        else:
            high = middle - 1
    return low


@part
def _center(profile: Profile) -> None:
    """Move all intervals to the middle of the array."""
    begin, end = profile.ends[0], profile.ends[1]
    count = end - begin
    to = (len(profile.time) - count) // 2
    profile.time[to : to + count] = profile.time[begin:end].copy()
    profile.free[to : to + count] = profile.free[begin:end].copy()
    profile.ends[0], profile.ends[1] = to, to + count
    _sum_up(profile, to, to + count)


@part
def _cut(profile: Profile, time: float) -> int:
    """See to it that a interval begins at this time; return its place, as it is before the next change."""
    at = _find(profile, time)
    if profile.time[at] == time:
        return at
    if profile.ends[0] == 0 or profile.ends[1] == len(profile.time):
        _center(profile)
        at = _find(profile, time)
    begin, end = profile.ends[0], profile.ends[1]
    if at - begin < end - at:
        for k in range(begin, at + 1):
            profile.time[k - 1], profile.free[k - 1] = profile.time[k], profile.free[k]
        profile.ends[0] -= 1
        profile.time[at] = time
        _sum_up(profile, begin - 1, at + 1)
        return at
    for k in range(end, at + 1, -1):
        profile.time[k], profile.free[k] = profile.time[k - 1], profile.free[k - 1]
    profile.ends[1] += 1
    profile.time[at + 1], profile.free[at + 1] = time, profile.free[at]
    _sum_up(profile, at + 1, end + 1)
    return at + 1


@part
def _join(profile: Profile, at: int) -> None:
    """Make one of a interval and the one before it, if the same is free in both."""
    begin, end = profile.ends[0], profile.ends[1]
    if at <= begin or at >= end or profile.free[at] != profile.free[at - 1]:
        return
    if at - begin < end - at:
        for k in range(at, begin, -1):
            profile.time[k], profile.free[k] = profile.time[k - 1], profile.free[k - 1]
        # The joined interval begins where the earlier one did, which has just been moved here.
        profile.ends[0] += 1
        _sum_up(profile, begin, at + 1)
    else:
        for k in range(at, end - 1):
            profile.time[k], profile.free[k] = profile.time[k + 1], profile.free[k + 1]
        profile.ends[1] -= 1
        _sum_up(profile, at, end)


@part
def change(profile: Profile, begin: float, end: float, cpus: int) -> int:
    """``cpus`` more (below 0: fewer) are free from begin to end, both finite; returns the least free in between."""
    if begin >= end:
        return 0
    _cut(profile, begin)
    _cut(profile, end)
    first, last = _find(profile, begin), _find(profile, end)
    least = int(profile.free[first]) + cpus
    for at in range(first, last):
        profile.free[at] += cpus
        least = min(least, int(profile.free[at]))
    _sum_up(profile, first, last)
    _join(profile, last)
    _join(profile, _find(profile, begin))
    return least


@part
def shift(profile: Profile, begin: float, end: float, cpus: int) -> None:
    """``cpus`` more (below 0: fewer) are free in every interval that begin to end meets; no interval is cut or joined,
    so that a profile of a long time costs no more than a short one."""
    if begin >= end:
        return
    first, last = _find(profile, begin), _find(profile, end)
    if profile.time[last] < end:
        last += 1
    for at in range(first, last):
        profile.free[at] += cpus
    _sum_up(profile, first, last)


@part
def free_at(profile: Profile, time: float) -> int:
    """CPUs free at this time."""
    return int(profile.free[_find(profile, time)])


@part
def least_free(profile: Profile, begin: float, end: float) -> int:
    """The least that is free at any time from begin to before end (begin < end)."""
    at = _find(profile, begin)
    least = int(profile.free[at])
    at += 1
    while at < profile.ends[1] and profile.time[at] < end:
        least = min(least, int(profile.free[at]))
        at += 1
    return least


@part
def advance(profile: Profile, now: float) -> None:
    """Forget what is over."""
    while profile.ends[0] + 1 < profile.ends[1] and profile.time[profile.ends[0] + 1] <= now:
        profile.ends[0] += 1


@part
def earliest(profile: Profile, cpus: int, seconds: float, begin: float, before: float, own: float) -> float:
    """The first time from ``begin`` on, but earlier than ``before``, from which so many CPUs are free for so long;
    inf if there is none. From ``own`` on (not before ``before``) all is taken to be free: the asking job's own place.
    """
    time, free, last = profile.time, profile.free, profile.ends[1]
    at = _find(profile, begin)
    while True:
        # A first interval with enough, whole blocks at a time.
        while at < last and free[at] < cpus:
            at += 1
            if at & (_BLOCK - 1) == 0:
                while at < last and profile.most[at >> _SHIFT] < cpus and time[at] < before:
                    at += _BLOCK
        if at >= last:
            return np.inf
        start = max(float(time[at]), begin)
        if start >= before:
            return np.inf
        # All that follow must have enough too.
        end = min(start + seconds, own)
        at += 1
        while at < last and time[at] < end and free[at] >= cpus:
            at += 1
            if at & (_BLOCK - 1) == 0:
                while at < last and profile.least[at >> _SHIFT] >= cpus:
                    at += _BLOCK
        if at >= last or time[at] >= end:
            return start
