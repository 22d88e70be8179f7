"""A machine on which jobs run, are stopped and come back: what UJFB keeps track of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.reservations import Book
from omfs_daemon.simulate.kernels.reservations import enter
from omfs_daemon.simulate.kernels.reservations import give_back
from omfs_daemon.simulate.kernels.reservations import new_book
from omfs_daemon.simulate.kernels.reservations import reserve_first
from omfs_daemon.simulate.kernels.reservations import take
from omfs_daemon.simulate.kernels.running import Ends
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.kernels.running import first_end
from omfs_daemon.simulate.kernels.running import no_ends
from omfs_daemon.simulate.kernels.running import pop_end
from omfs_daemon.simulate.kernels.running import push_end
from omfs_daemon.simulate.kernels.ujfb.allocation_log import RESUME
from omfs_daemon.simulate.kernels.ujfb.allocation_log import WORK
from omfs_daemon.simulate.kernels.ujfb.allocation_log import Log
from omfs_daemon.simulate.kernels.ujfb.allocation_log import note
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY
from omfs_daemon.simulate.kernels.ujfb.unit_owners import Units
from omfs_daemon.simulate.kernels.ujfb.unit_owners import bring_back
from omfs_daemon.simulate.kernels.ujfb.unit_owners import new_units
from omfs_daemon.simulate.kernels.ujfb.unit_owners import occupy
from omfs_daemon.simulate.kernels.ujfb.unit_owners import vacate
from omfs_daemon.simulate.workload.workload import Floats
from omfs_daemon.simulate.workload.workload import Ints

UNSEEN, WAITING, RUNNING, STOPPING, STOPPED, DONE = 0, 1, 2, 3, 4, 5


JOB = np.dtype(
    [(name, np.float64) for name in ("submit", "run", "estimate", "stop", "resume", "queueing", "size")]
    + [(name, np.float64) for name in ("since", "computing", "done", "left", "planned", "until", "ends", "gone")]
    + [(name, np.float64) for name in ("start", "finish")]
    + [(name, np.int64) for name in ("cpus", "state", "stops", "place")]
    + [(name, np.bool_) for name in ("urgent", "stoppable", "keeps", "pinned")]
)
"""A job. What is known of it from the start is named as in ``Jobs`` and ``StopCosts``; besides:

since, computing  when its present stretch began, and from when on it computes in it
done, left        seconds of work that are safe, and that are still expected to be needed (of a stopped job)
planned, until    when it should be done by its estimate, and until when the book counts its own units as taken
ends, gone        when it will be done if it is not stopped; when it had let go of its CPUs
place             where it stands among those that may be stopped
"""


class Site(NamedTuple):
    """Everything that changes.

    jobs      records of ``JOB``
    finishing, overdue, releases  when jobs will be done, pass their expected end, and are gone after a stop
    victims   the running jobs that may be stopped
    asleep    swapped-out jobs
    urgents   the urgent queue
    size      how many are in victims, asleep, urgents; and CPUs of all victims
    swapped   bytes in the swap area (one entry), of ``area``
    latency   seconds before any stop begins
    """

    jobs: Records
    book: Book
    units: Units
    finishing: Ends
    overdue: Ends
    releases: Ends
    victims: Ints
    asleep: Ints
    urgents: Ints
    size: Ints
    swapped: Floats
    area: float
    latency: float


VICTIMS, ASLEEP, URGENTS, CPUS = 0, 1, 2, 3


@part
def new_site(jobs: Records, machine: int, area: float, latency: float) -> Site:
    """Nobody has come yet."""
    count = len(jobs)
    book = new_book(machine, count)
    for job in range(count):
        # Urgent jobs give way last, then stopped ones (see release), then all others; among equals the older ones.
        rank = job - 2 * count if jobs[job].urgent else job
        enter(book, job, jobs[job].cpus, jobs[job].estimate, rank)
        jobs[job].start = jobs[job].finish = np.nan
    return Site(
        jobs,
        book,
        new_units(machine, count),
        no_ends(2 * count + 16),
        no_ends(2 * count + 16),
        no_ends(count + 1),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.zeros(4, np.int64),
        np.zeros(1),
        area,
        latency,
    )


# -- ends ------------------------------------------------------------------------------------------------
@part
def end(site: Site, log: Log, now: float) -> None:
    """Jobs that are done go."""
    while first_end(site.finishing) <= now:
        time = first_end(site.finishing)
        job = pop_end(site.finishing)
        its = site.jobs[job]
        if its.state != RUNNING or its.ends != time:
            continue
        note_stretch(site, log, job, now, WORK)
        its.state, its.finish = DONE, now
        no_victim(site, job)
        bring_back(site.units, job)
        give_back(site.book, now, its.until, vacate(site.units, job))


@part
def note_stretch(site: Site, log: Log, job: int, now: float, use: int) -> None:
    """The present stretch of a running job is over: it was brought back first, then it computed."""
    its = site.jobs[job]
    computing = min(its.computing, now)
    note(log, job, its.since, computing, RESUME)
    note(log, job, computing, now, use)


@part
def release(site: Site, now: float) -> None:
    """Killed and checkpointed jobs are gone: what the urgent job does not need of theirs is free, and they wait at the
    head of the regular queue."""
    while first_end(site.releases) <= now:
        job = pop_end(site.releases)
        its = site.jobs[job]
        give_back(site.book, now, its.until, vacate(site.units, job))
        its.state = WAITING
        site.book.entries[job].expected = its.resume + its.left
        if site.book.entries[job].rank >= 0:
            site.book.entries[job].rank -= len(site.jobs)
        reserve_first(site.book, job, now)


@part
def correct(site: Site, now: float) -> None:
    """Jobs that should have ended and have not are expected to end later."""
    while first_end(site.overdue) <= now:
        time = first_end(site.overdue)
        job = pop_end(site.overdue)
        its = site.jobs[job]
        if its.state != RUNNING or its.until != time or its.ends <= now:
            continue
        until = corrected(its.planned, 0.0, now)
        take(site.book, time, until, site.units.of[job].owned, now)
        its.until = until
        push_end(site.overdue, until, job)
        unit = site.units.of[job].first_borrowed
        while unit != NOBODY:
            keep_until(site, site.units.all[unit].home, until, now)
            unit = site.units.all[unit].next_borrowed


# -- starts ----------------------------------------------------------------------------------------------
@part
def start(site: Site, job: int, now: float) -> None:
    """A job whose reserved start has come."""
    its = site.jobs[job]
    if np.isnan(its.start):
        its.start = now
    if site.book.entries[job].expected == 0.0:
        its.state, its.finish = DONE, now  # of no length, it holds nothing for any time
        return
    occupy(site.units, job, its.cpus)
    resume = its.resume if its.stops else 0.0
    run_on(site, job, now, now + resume, now + site.book.entries[job].expected)


@part
def run_on(site: Site, job: int, now: float, computing: float, until: float) -> None:
    """The job runs, computes from a time on, and is expected to be done at ``until``, for which the book has it."""
    its = site.jobs[job]
    its.state, its.since, its.computing = RUNNING, now, computing
    its.planned = its.until = until
    # With exact estimates both ends must be the same number, not only nearly so.
    exact = its.run == its.estimate
    its.ends = until if exact else computing + (its.run - its.done)
    _make_place(site, site.finishing)
    push_end(site.finishing, its.ends, job)
    if its.ends > until:
        _make_place(site, site.overdue)
        push_end(site.overdue, until, job)
    if its.stoppable:
        its.place = site.size[VICTIMS]
        site.victims[site.size[VICTIMS]] = job
        site.size[VICTIMS] += 1
        site.size[CPUS] += its.cpus


@part
def _make_place(site: Site, heap: Ends) -> None:
    """If a heap is full, take out what stops have made void: a job that was stopped often left an entry each time."""
    count = heap.size[0]
    if count < len(heap.time):
        return
    times, jobs = heap.time.copy(), heap.job.copy()
    heap.size[0] = 0
    for at in range(count):
        its = site.jobs[jobs[at]]
        if its.state == RUNNING and (times[at] == its.ends or times[at] == its.until):
            push_end(heap, times[at], jobs[at])


@part
def no_victim(site: Site, job: int) -> None:
    """The job can be stopped no more."""
    its = site.jobs[job]
    at = its.place
    if not its.stoppable or at >= site.size[VICTIMS] or site.victims[at] != job:
        return
    site.size[VICTIMS] -= 1
    last = site.victims[site.size[VICTIMS]]
    site.victims[at], site.jobs[last].place = last, at
    site.size[CPUS] -= its.cpus


@part
def wake(site: Site, now: float) -> None:
    """Swapped-out jobs go on whose own units nobody uses any more."""
    kept = 0
    for at in range(site.size[ASLEEP]):
        job = site.asleep[at]
        its = site.jobs[job]
        if site.units.of[job].lent or its.gone > now:
            site.asleep[kept] = job
            kept += 1
            continue
        site.swapped[0] -= its.size
        computing = now + its.resume
        until = computing + its.left
        set_until(site, job, until, now)
        run_on(site, job, now, computing, until)
    site.size[ASLEEP] = kept


@part
def set_until(site: Site, job: int, until: float, now: float) -> None:
    """The book counts the job's own units as taken until then."""
    its = site.jobs[job]
    if until > its.until:
        take(site.book, max(now, its.until), until, site.units.of[job].owned, now)
    else:
        give_back(site.book, until, its.until, site.units.of[job].owned)
    its.until = until


@part
def keep_until(site: Site, job: int, borrowed_until: float, now: float) -> None:
    """A swapped-out job keeps its units while they are lent, and then as long as it still needs."""
    its = site.jobs[job]
    until = borrowed_until + its.resume + its.left
    if until > its.until:
        set_until(site, job, until, now)
