"""UJFB (Agung et al. 2021, section IV-B): urgent jobs first, by stopping regular ones; these are backfilled."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.compiling import kernel
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.profile import advance
from omfs_daemon.simulate.kernels.profile import change
from omfs_daemon.simulate.kernels.profile import earliest
from omfs_daemon.simulate.kernels.profile import free_at
from omfs_daemon.simulate.kernels.reservations import compress
from omfs_daemon.simulate.kernels.reservations import next_due
from omfs_daemon.simulate.kernels.reservations import next_start
from omfs_daemon.simulate.kernels.reservations import reserve
from omfs_daemon.simulate.kernels.running import first_end
from omfs_daemon.simulate.kernels.ujfb.running_machine import ASLEEP
from omfs_daemon.simulate.kernels.ujfb.running_machine import URGENTS
from omfs_daemon.simulate.kernels.ujfb.running_machine import WAITING
from omfs_daemon.simulate.kernels.ujfb.running_machine import Site
from omfs_daemon.simulate.kernels.ujfb.running_machine import correct
from omfs_daemon.simulate.kernels.ujfb.running_machine import end
from omfs_daemon.simulate.kernels.ujfb.running_machine import new_site
from omfs_daemon.simulate.kernels.ujfb.running_machine import release
from omfs_daemon.simulate.kernels.ujfb.running_machine import start
from omfs_daemon.simulate.kernels.ujfb.running_machine import wake
from omfs_daemon.simulate.kernels.ujfb.allocation_log import Log
from omfs_daemon.simulate.kernels.ujfb.allocation_log import new_log
from omfs_daemon.simulate.kernels.ujfb.allocation_log import with_room
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY
from omfs_daemon.simulate.kernels.ujfb.urgent_placement import leave_queue
from omfs_daemon.simulate.kernels.ujfb.urgent_placement import serve_urgent
from omfs_daemon.simulate.kernels.waiting import Queue
from omfs_daemon.simulate.kernels.waiting import add
from omfs_daemon.simulate.kernels.waiting import empty_queue
from omfs_daemon.simulate.kernels.waiting import next_fitting
from omfs_daemon.simulate.kernels.waiting import pack
from omfs_daemon.simulate.kernels.waiting import remove


@kernel
def ujfb(jobs: Records, machine: int, area: float, latency: float, by_slowdown: bool, easy: bool) -> Log:
    """Start, finish (nan for jobs wider than the machine) and stops are noted in ``jobs``, records of ``site.JOB``;
    returns what held CPUs when.

    by_slowdown  the urgent queue is in order of the slowdown reached so far, instead of as they came
    easy         of the regular jobs only the first one has a reservation, instead of every one (the paper's)
    """
    count = len(jobs)
    site = new_site(jobs, machine, area, latency)
    log = new_log(count + 16)
    queue, head = empty_queue(count if easy else 0), NOBODY
    arrived = 0
    while True:
        now = min(first_end(site.finishing), first_end(site.overdue), first_end(site.releases), next_start(site.book))
        if arrived < count:
            now = min(now, jobs[arrived].submit)
        if now == np.inf:
            return log
        # A job that runs ends, or is stopped: at most three stretches.
        log = with_room(log, 3 * site.finishing.size[0])
        advance(site.book.profile, now)
        end(site, log, now)
        release(site, now)
        correct(site, now)
        newcomer = arrived
        while arrived < count and jobs[arrived].submit <= now:
            if jobs[arrived].urgent and jobs[arrived].cpus <= machine:
                jobs[arrived].state = WAITING
                site.urgents[site.size[URGENTS]] = arrived
                site.size[URGENTS] += 1
            arrived += 1
        if site.size[URGENTS]:
            serve_urgent(site, log, now, by_slowdown)
        if site.size[ASLEEP]:
            wake(site, now)
        compress(site.book, now)
        for job in range(newcomer, arrived):
            if not jobs[job].urgent and jobs[job].cpus <= machine:
                jobs[job].state = WAITING
                if easy:
                    add(queue, job, jobs[job].cpus, jobs[job].estimate)
                else:
                    reserve(site.book, job, now)
        _start_due(site, now)
        if easy:
            head = _next_head(site, queue, head, now)
            _backfill(site, queue, head, now)


@part
def _start_due(site: Site, now: float) -> None:
    """Jobs start whose reserved start has come."""
    job = next_due(site.book, now)
    while job >= 0:
        if site.jobs[job].urgent:
            leave_queue(site, job)
        start(site, job, now)
        job = next_due(site.book, now)


@part
def _next_head(site: Site, queue: Queue, head: int, now: float) -> int:
    """Start jobs from the front of the queue until one does not fit; that one is the head, and gets a reservation."""
    while head == NOBODY or site.jobs[head].state != WAITING:
        if queue.alive[0] == 0:
            return NOBODY
        slot = queue.first[0]
        head = queue.job[slot]
        remove(queue, slot)
        reserve(site.book, head, now)
        if next_due(site.book, now) == head:
            start(site, head, now)
    return head


@part
def _backfill(site: Site, queue: Queue, head: int, now: float) -> None:
    """Start all other jobs that disturb no reservation, in order of the queue."""
    if head == NOBODY:
        return
    pack(queue)
    profile, slot = site.book.profile, queue.first[0]
    by = site.book.entries[head].reserved
    while True:
        slot = next_fitting(queue, slot, free_at(profile, now), free_at(profile, by), now, by)
        if slot == queue.end[0]:
            return
        job = queue.job[slot]
        cpus, seconds = site.jobs[job].cpus, site.jobs[job].estimate
        if earliest(profile, cpus, seconds, now, np.nextafter(now, np.inf), np.inf) == now:
            change(profile, now, now + seconds, -cpus)
            remove(queue, slot)
            start(site, job, now)
        slot += 1
