"""Jobs that run: when they will end (a heap, known to the clock only), and when a policy expects them to end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.kernels.compiling import part, shared_part

CORRECTIONS = np.array([60.0, 300.0, 900.0, 1800.0, *(hours * HOUR for hours in (1, 2, 5, 10, 20, 50, 100))])
"""Seconds after the estimate that has passed."""


@shared_part
def corrected(start: float, estimate: float, now: float) -> float:
    """Seconds; when a running job is expected to end: by its estimate, and when that has passed, by the first
    correction that is still to come (Tsafrir, Etsion & Feitelson 2007); after the last one, 100 h at a time."""
    end = start + estimate
    if end > now:
        return end
    for more in CORRECTIONS:
        if end + more > now:
            return float(end + more)
    last = CORRECTIONS[-1]
    times = np.floor((now - end) / last)
    while end + times * last <= now:
        times += 1.0
    return float(end + times * last)


@part
def put_off_within(end: float, latest: float, now: float) -> float:
    """When a job is expected to end that should do so at ``end``: as in ``corrected``, but at its limit (``latest``) at
    the latest, unless that has passed too."""
    put_off = corrected(end, 0.0, now)
    if put_off <= latest:
        return put_off
    return max(latest, corrected(latest, 0.0, now))


@part
def corrected_within(start: float, estimate: float, limit: float, now: float) -> float:
    """The same of a job that started then."""
    return put_off_within(start + estimate, start + limit, now)


@part
def expected_remaining(predicted: float, worked: float, limit: float) -> float:
    """Seconds that a job which has worked for so long will run still, as ``predict.run_draws.remaining_quantiles`` says
    of a prediction of one length."""
    return max(0.0, min(corrected(0.0, predicted, worked), limit) - worked)


class Ends(NamedTuple):
    """A binary heap of (seconds, job), the earliest first; ``size`` has one entry."""

    time: Floats
    job: Ints
    size: Ints


@part
def no_ends(capacity: int) -> Ends:
    """An empty heap for so many jobs."""
    return Ends(np.empty(capacity), np.empty(capacity, np.int64), np.zeros(1, np.int64))


@part
def first_end(ends: Ends) -> float:
    """Seconds; inf if nothing runs."""
    return float(ends.time[0]) if ends.size[0] > 0 else np.inf


@part
def _is_first(ends: Ends, place: int, time: float, job: int) -> bool:
    """Whether the entry there comes before such a one."""
    return bool(ends.time[place] < time or (ends.time[place] == time and ends.job[place] < job))


@part
def push_end(ends: Ends, time: float, job: int) -> None:
    """Add a job that ends then."""
    place = ends.size[0]
    ends.size[0] += 1
    while place > 0:
        parent = (place - 1) // 2
        if _is_first(ends, parent, time, job):
            break
        ends.time[place] = ends.time[parent]
        ends.job[place] = ends.job[parent]
        place = parent
    ends.time[place] = time
    ends.job[place] = job


@part
def pop_end(ends: Ends) -> int:
    """Take out the job that ends first; of several at one instant, the lowest."""
    first = int(ends.job[0])
    ends.size[0] -= 1
    size = ends.size[0]
    time, job = ends.time[size], ends.job[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _is_first(ends, child + 1, ends.time[child], ends.job[child]):
            child += 1
        if not _is_first(ends, child, time, job):
            break
        ends.time[place] = ends.time[child]
        ends.job[place] = ends.job[child]
        place = child
    ends.time[place] = time
    ends.job[place] = job
    return first


class Expected(NamedTuple):
    """Running jobs by expected end, the *latest first*, so that jobs near their end go and come cheaply.

    end   seconds, one entry a running job
    job   index; of equal ends the higher first
    size  one entry
    """

    end: Floats
    job: Ints
    size: Ints


@part
def nothing_expected(capacity: int) -> Expected:
    """Nobody runs; there is room for so many jobs."""
    return Expected(np.empty(capacity), np.empty(capacity, np.int64), np.zeros(1, np.int64))


@part
def expect(expected: Expected, end: float, job: int) -> None:
    """Add a job."""
    place = expected.size[0]
    expected.size[0] += 1
    while place > 0 and (
        expected.end[place - 1] < end or (expected.end[place - 1] == end and expected.job[place - 1] < job)
    ):
        expected.end[place] = expected.end[place - 1]
        expected.job[place] = expected.job[place - 1]
        place -= 1
    expected.end[place] = end
    expected.job[place] = job


@part
def expect_no_more(expected: Expected, end: float, job: int) -> None:
    """Take out a job that was expected to end then."""
    low, high = 0, expected.size[0] - 1
    while low < high:
        middle = (low + high) // 2
        if expected.end[middle] > end or (expected.end[middle] == end and expected.job[middle] > job):
            low = middle + 1
        else:
            high = middle
    expected.size[0] -= 1
    for place in range(low, expected.size[0]):
        expected.end[place] = expected.end[place + 1]
        expected.job[place] = expected.job[place + 1]


@part
def correct_expected(
    expected: Expected, expected_end: Floats, start: Floats, estimate: Floats, limit: Floats, now: float
) -> bool:
    """Put off the expected end of all jobs that should have ended by now, in the order and in ``expected_end``, which
    has an entry a job; whether there were any. ``limit``: seconds, by job; inf: none."""
    any_late = False
    while expected.size[0] > 0 and expected.end[expected.size[0] - 1] <= now:
        any_late = True
        expected.size[0] -= 1
        job = expected.job[expected.size[0]]
        expected_end[job] = corrected_within(start[job], estimate[job], limit[job], now)
        expect(expected, expected_end[job], job)
    return any_late


@part
def reservation(expected: Expected, cpus: Ints, needed: int, free: int) -> tuple[float, int]:
    """The shadow time, in seconds, at which ``needed`` CPUs are expected to be free, and how many more are free then
    (Mu'alem & Feitelson 2001, EASY): all jobs that are expected to end at that instant count as gone."""
    place = expected.size[0] - 1
    while free < needed:
        free += cpus[expected.job[place]]
        place -= 1
    shadow = expected.end[place + 1]
    while place >= 0 and expected.end[place] == shadow:
        free += cpus[expected.job[place]]
        place -= 1
    return shadow, free - needed
