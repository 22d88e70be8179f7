"""Waiting jobs that each have a reserved start: the core of conservative backfilling.

A reservation is made at the earliest time at which it disturbs no other one, and moves to an earlier time only
(Mu'alem and Feitelson 2001, section 2.2), unless what runs changes for the worse: a job overstays, or an urgent one
comes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.profile import Profile
from omfs_daemon.simulate.kernels.profile import change
from omfs_daemon.simulate.kernels.profile import earliest
from omfs_daemon.simulate.kernels.profile import least_free
from omfs_daemon.simulate.kernels.profile import new_profile
from omfs_daemon.simulate.kernels.running import no_ends
from omfs_daemon.simulate.kernels.running import pop_end
from omfs_daemon.simulate.kernels.running import push_end
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints

DEPTH = 1000
"""How many waiting jobs may move up at a time: those that are to start first. The others keep their places until they
are among them, so that no pass costs more because more jobs wait (as Slurm's ``bf_max_job_test``)."""

ENTRY = np.dtype(
    [("reserved", np.float64), ("expected", np.float64)] + [(name, np.int64) for name in ("cpus", "rank", "looked")]
)
"""A job: its reserved start (inf: it has none), the seconds that it is expected to run from then on, its CPUs, its rank
(who gives way last when reservations clash has the lowest), and the compression in which it last looked."""


class Book(NamedTuple):
    """The waiting jobs ``order[ends[0]:ends[1]]``, by reserved start; ``ends[2]`` compressions were made.

    profile   CPUs free beside what runs and what is reserved
    entries   records of ``ENTRY``, by job
    gain      the time from gain[0] to gain[1] (empty: gain[0] > gain[1]) in which more became free than when the
              waiting jobs last looked
    """

    profile: Profile
    order: Ints
    ends: Ints
    entries: Records
    gain: Floats


@part
def new_book(machine: int, count: int) -> Book:
    """Room for so many jobs; nobody waits, everything is free."""
    return Book(
        new_profile(machine, 2 * count + 2),
        np.empty(2 * count + 2, np.int64),
        np.zeros(3, np.int64),
        np.empty(count, ENTRY),
        np.array([np.inf, -np.inf]),
    )


@part
def enter(book: Book, job: int, cpus: int, expected: float, rank: int) -> None:
    """Tell the book about a job."""
    entry = book.entries[job]
    entry.reserved, entry.expected, entry.cpus, entry.rank = np.inf, expected, cpus, rank


@part
def next_start(book: Book) -> float:
    """The earliest reserved start; inf if nobody waits."""
    return float(book.entries[book.order[book.ends[0]]].reserved) if book.ends[0] < book.ends[1] else np.inf


@part
def _enlist(book: Book, job: int, before: int) -> None:
    """Put a job among those at places before ``before``, behind all that start at the same time; the place ``before``
    itself is free to be overwritten."""
    low, high = book.ends[0], before
    start = book.entries[job].reserved
    while low < high:
        middle = (low + high) >> 1
        if book.entries[book.order[middle]].reserved <= start:
            low = middle + 1
        else:
            high = middle
    for at in range(before, low, -1):
        book.order[at] = book.order[at - 1]
    book.order[low] = job


@part
def reserve(book: Book, job: int, now: float) -> float:
    """Give a job the earliest start that there is, and return it."""
    its = book.entries[job]
    start = earliest(book.profile, its.cpus, its.expected, now, np.inf, np.inf)
    change(book.profile, start, start + its.expected, -its.cpus)
    its.reserved, its.looked = start, book.ends[2]
    if book.ends[1] == len(book.order):
        count = book.ends[1] - book.ends[0]
        book.order[:count] = book.order[book.ends[0] : book.ends[1]].copy()
        book.ends[0], book.ends[1] = 0, count
    book.ends[1] += 1
    _enlist(book, job, book.ends[1] - 1)
    return start


@part
def next_due(book: Book, now: float) -> int:
    """Take a job off the book whose start has come, with what is reserved for it; -1 if there is none."""
    if next_start(book) > now:
        return -1
    book.ends[0] += 1
    return int(book.order[book.ends[0] - 1])


@part
def give_back(book: Book, begin: float, end: float, cpus: int) -> None:
    """CPUs are free that were not from begin to end."""
    change(book.profile, begin, end, cpus)
    if begin < end:
        book.gain[0], book.gain[1] = min(book.gain[0], begin), max(book.gain[1], end)


@part
def compress(book: Book, now: float) -> None:
    """The first waiting jobs, in order of their reserved starts, move to earlier ones if they can.

    A job that could not move when it last looked can do so only into time that was gained since, so the others are
    passed over. What a move gains comes too late for those that have looked already: they look again the next time.
    """
    begin, end = max(book.gain[0], now), book.gain[1]
    book.gain[0], book.gain[1] = np.inf, -np.inf
    if begin >= end:
        return
    book.ends[2] += 1
    for at in range(book.ends[0], min(book.ends[1], book.ends[0] + DEPTH)):
        job = book.order[at]
        its = book.entries[job]
        old, seconds, cpus = its.reserved, its.expected, its.cpus
        if its.looked == book.ends[2] - 1:
            new = earliest(book.profile, cpus, seconds, max(now, begin - seconds), min(old, end), old)
        else:
            new = earliest(book.profile, cpus, seconds, now, old, old)  # it has missed some
        its.looked = book.ends[2]
        if new < old:
            change(book.profile, old, old + seconds, cpus)
            change(book.profile, new, new + seconds, -cpus)
            its.reserved = new
            _enlist(book, job, at)
            begin, end = min(begin, old), max(end, old + seconds)
            book.gain[0], book.gain[1] = min(book.gain[0], old), max(book.gain[1], old + seconds)


@part
def _by_rank(book: Book, jobs: Ints) -> Ints:
    """These jobs, lowest rank first. By a heap: numba's sorts take seconds to compile wherever they are called."""
    heap = no_ends(len(jobs))
    for job in jobs:
        push_end(heap, book.entries[job].rank, job)
    ordered = np.empty(len(jobs), np.int64)
    for at in range(len(jobs)):
        ordered[at] = pop_end(heap)
    return ordered


@part
def take(book: Book, begin: float, end: float, cpus: int, now: float) -> None:
    """CPUs are taken from begin to end, whatever is reserved: waiting jobs that clash with it give way.

    Those of the highest rank go first, only as many as must; then, in order of rank, they get the earliest places left.
    """
    if begin >= end or change(book.profile, begin, end, -cpus) >= 0:
        return
    clashing = np.empty(book.ends[1] - book.ends[0], np.int64)
    count = 0
    for at in range(book.ends[0], book.ends[1]):
        job = book.order[at]
        its = book.entries[job]
        if its.reserved >= end:
            break
        if its.reserved + its.expected > begin or its.reserved == begin:
            clashing[count] = job
            count += 1
    clashing = _by_rank(book, clashing[:count])
    for job in clashing[::-1]:
        its = book.entries[job]
        start = its.reserved
        stop = start + its.expected
        if least_free(book.profile, max(begin, start), min(end, stop)) < 0:
            give_back(book, start, stop, its.cpus)
            its.reserved = np.inf
    _strike_off(book)
    for job in clashing:
        its = book.entries[job]
        if its.reserved == np.inf:
            reserve(book, job, now)


@part
def _strike_off(book: Book) -> None:
    """Take the jobs off the order that have no reservation any more."""
    kept = book.ends[0]
    for at in range(book.ends[0], book.ends[1]):
        if book.entries[book.order[at]].reserved < np.inf:
            book.order[kept] = book.order[at]
            kept += 1
    book.ends[1] = kept


@part
def reserve_first(book: Book, job: int, now: float) -> None:
    """Reserve for a job as if those of higher rank were not there; they get what is left, in order of rank."""
    waiting = book.order[book.ends[0] : book.ends[1]].copy()
    count = 0
    for other in waiting:
        if book.entries[other].rank > book.entries[job].rank:
            waiting[count] = other
            count += 1
    behind = _by_rank(book, waiting[:count])
    for other in behind:
        its = book.entries[other]
        give_back(book, its.reserved, its.reserved + its.expected, its.cpus)
        its.reserved = np.inf
    _strike_off(book)
    reserve(book, job, now)
    for other in behind:
        reserve(book, other, now)


@part
def withdraw(book: Book, job: int) -> None:
    """The job waits no longer; what was reserved for it is free."""
    its = book.entries[job]
    give_back(book, its.reserved, its.reserved + its.expected, its.cpus)
    its.reserved = np.inf
    _strike_off(book)
