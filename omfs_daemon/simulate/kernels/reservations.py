"""Waiting jobs that each have a reserved start: the core of conservative backfilling.

A reservation is made at the earliest time at which it disturbs no other one, and moves to an earlier time only
(Mu'alem and Feitelson 2001, section 2.2), unless what runs changes for the worse: a job overstays, or an urgent one
comes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import Records, part
from omfs_daemon.simulate.kernels.profile import Profile, change, earliest, least_free, new_profile
from omfs_daemon.simulate.kernels.running import no_ends, pop_end, push_end

DEPTH = 1000
"""How many waiting jobs may move up at a time: those that are to start first. The others keep their places until they
are among them, so that no pass costs more because more jobs wait (as Slurm's ``bf_max_job_test``)."""

ENTRY = np.dtype(
    [("reserved", np.float64), ("expected", np.float64)]
    + [(name, np.int64) for name in ("cpus", "rank", "last_compression")]
)
"""A job: its reserved start (inf: it has none), the seconds that it is expected to run from then on, its CPUs, its rank
(who gives way last when reservations clash has the lowest), and the compression in which it was last considered."""


class Reservations(NamedTuple):
    """The waiting jobs ``order[ends[0]:ends[1]]``, by reserved start; ``ends[2]`` compressions were made.

    profile   CPUs free beside what runs and what is reserved
    entries   records of ``ENTRY``, by job
    gain      the time from gain[0] to gain[1] (empty: gain[0] > gain[1]) in which more became free than when the
              waiting jobs were last considered
    """

    profile: Profile
    order: Ints
    ends: Ints
    entries: Records
    gain: Floats


@part
def new_reservations(capacity: int, count: int) -> Reservations:
    """Room for so many jobs; nobody waits, everything is free."""
    return Reservations(
        new_profile(capacity, 2 * count + 2),
        np.empty(2 * count + 2, np.int64),
        np.zeros(3, np.int64),
        np.empty(count, ENTRY),
        np.array([np.inf, -np.inf]),
    )


@part
def add_job(reservations: Reservations, job: int, cpus: int, expected: float, rank: int) -> None:
    """Add a job that has no reservation yet."""
    entry = reservations.entries[job]
    entry.reserved, entry.expected, entry.cpus, entry.rank = np.inf, expected, cpus, rank


@part
def next_start(reservations: Reservations) -> float:
    """The earliest reserved start; inf if nobody waits."""
    return (
        float(reservations.entries[reservations.order[reservations.ends[0]]].reserved)
        if reservations.ends[0] < reservations.ends[1]
        else np.inf
    )


@part
def _enlist(reservations: Reservations, job: int, before: int) -> None:
    """Put a job among those at places before ``before``, behind all that start at the same time; the place ``before``
    itself is free to be overwritten."""
    low, high = reservations.ends[0], before
    start = reservations.entries[job].reserved
    while low < high:
        middle = (low + high) >> 1
        if reservations.entries[reservations.order[middle]].reserved <= start:
            low = middle + 1
        else:
            high = middle
    for at in range(before, low, -1):
        reservations.order[at] = reservations.order[at - 1]
    reservations.order[low] = job


@part
def reserve(reservations: Reservations, job: int, now: float) -> float:
    """Give a job the earliest start that there is, and return it."""
    record = reservations.entries[job]
    start = earliest(reservations.profile, record.cpus, record.expected, now, np.inf, np.inf)
    change(reservations.profile, start, start + record.expected, -record.cpus)
    record.reserved, record.last_compression = start, reservations.ends[2]
    if reservations.ends[1] == len(reservations.order):
        count = reservations.ends[1] - reservations.ends[0]
        reservations.order[:count] = reservations.order[reservations.ends[0] : reservations.ends[1]].copy()
        reservations.ends[0], reservations.ends[1] = 0, count
    reservations.ends[1] += 1
    _enlist(reservations, job, reservations.ends[1] - 1)
    return start


@part
def next_due(reservations: Reservations, now: float) -> int:
    """Remove a job whose start has come, with what is reserved for it; -1 if there is none."""
    if next_start(reservations) > now:
        return -1
    reservations.ends[0] += 1
    return int(reservations.order[reservations.ends[0] - 1])


@part
def give_back(reservations: Reservations, begin: float, end: float, cpus: int) -> None:
    """CPUs are free that were not from begin to end."""
    change(reservations.profile, begin, end, cpus)
    if begin < end:
        reservations.gain[0], reservations.gain[1] = min(reservations.gain[0], begin), max(reservations.gain[1], end)


@part
def compress(reservations: Reservations, now: float) -> None:
    """The first waiting jobs, in order of their reserved starts, move to earlier ones if they can.

    A job that could not move when it was last considered can do so only into time that was gained since, so the others
    are skipped. What a move gains comes too late for those considered before it: they are considered again next time.
    """
    begin, end = max(reservations.gain[0], now), reservations.gain[1]
    reservations.gain[0], reservations.gain[1] = np.inf, -np.inf
    if begin >= end:
        return
    reservations.ends[2] += 1
    for at in range(reservations.ends[0], min(reservations.ends[1], reservations.ends[0] + DEPTH)):
        job = reservations.order[at]
        record = reservations.entries[job]
        old, seconds, cpus = record.reserved, record.expected, record.cpus
        if record.last_compression == reservations.ends[2] - 1:
            new = earliest(reservations.profile, cpus, seconds, max(now, begin - seconds), min(old, end), old)
        else:
            new = earliest(reservations.profile, cpus, seconds, now, old, old)  # it has missed some
        record.last_compression = reservations.ends[2]
        if new < old:
            change(reservations.profile, old, old + seconds, cpus)
            change(reservations.profile, new, new + seconds, -cpus)
            record.reserved = new
            _enlist(reservations, job, at)
            begin, end = min(begin, old), max(end, old + seconds)
            reservations.gain[0], reservations.gain[1] = (
                min(reservations.gain[0], old),
                max(reservations.gain[1], old + seconds),
            )


@part
def _by_rank(reservations: Reservations, jobs: Ints) -> Ints:
    """These jobs, lowest rank first. By a heap: numba's sorts take seconds to compile wherever they are called."""
    heap = no_ends(len(jobs))
    for job in jobs:
        push_end(heap, reservations.entries[job].rank, job)
    ordered = np.empty(len(jobs), np.int64)
    for at in range(len(jobs)):
        ordered[at] = pop_end(heap)
    return ordered


@part
def take(reservations: Reservations, begin: float, end: float, cpus: int, now: float) -> None:
    """CPUs are taken from begin to end, whatever is reserved: waiting jobs that clash with it give way.

    Those of the highest rank go first, only as many as must; then, in order of rank, they get the earliest places left.
    """
    if begin >= end or change(reservations.profile, begin, end, -cpus) >= 0:
        return
    clashing = np.empty(reservations.ends[1] - reservations.ends[0], np.int64)
    count = 0
    for at in range(reservations.ends[0], reservations.ends[1]):
        job = reservations.order[at]
        record = reservations.entries[job]
        if record.reserved >= end:
            break
        if record.reserved + record.expected > begin or record.reserved == begin:
            clashing[count] = job
            count += 1
    clashing = _by_rank(reservations, clashing[:count])
    for job in clashing[::-1]:
        record = reservations.entries[job]
        start = record.reserved
        expected_end = start + record.expected
        if least_free(reservations.profile, max(begin, start), min(end, expected_end)) < 0:
            give_back(reservations, start, expected_end, record.cpus)
            record.reserved = np.inf
    _strike_off(reservations)
    for job in clashing:
        record = reservations.entries[job]
        if record.reserved == np.inf:
            reserve(reservations, job, now)


@part
def _strike_off(reservations: Reservations) -> None:
    """Take the jobs off the order that have no reservation any more."""
    kept = reservations.ends[0]
    for at in range(reservations.ends[0], reservations.ends[1]):
        if reservations.entries[reservations.order[at]].reserved < np.inf:
            reservations.order[kept] = reservations.order[at]
            kept += 1
    reservations.ends[1] = kept


@part
def reserve_first(reservations: Reservations, job: int, now: float) -> None:
    """Reserve for a job as if those of higher rank were not there; they get what is left, in order of rank."""
    waiting = reservations.order[reservations.ends[0] : reservations.ends[1]].copy()
    count = 0
    for other in waiting:
        if reservations.entries[other].rank > reservations.entries[job].rank:
            waiting[count] = other
            count += 1
    behind = _by_rank(reservations, waiting[:count])
    for other in behind:
        record = reservations.entries[other]
        give_back(reservations, record.reserved, record.reserved + record.expected, record.cpus)
        record.reserved = np.inf
    _strike_off(reservations)
    reserve(reservations, job, now)
    for other in behind:
        reserve(reservations, other, now)


@part
def withdraw(reservations: Reservations, job: int) -> None:
    """The job waits no longer; what was reserved for it is free."""
    record = reservations.entries[job]
    give_back(reservations, record.reserved, record.reserved + record.expected, record.cpus)
    record.reserved = np.inf
    _strike_off(reservations)
