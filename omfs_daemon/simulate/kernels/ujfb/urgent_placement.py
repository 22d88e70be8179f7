"""How urgent jobs get their CPUs (Agung et al. 2021, section IV-B).

An urgent job takes what is free, whatever is reserved there; then what swapped-out jobs keep and do not use; then it
stops regular jobs, longest remaining first, none needlessly. If all of that is not enough, it waits in the urgent
queue, before all regular jobs. Urgent jobs are never stopped.
"""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.engine import preemption_delay as set_costs
from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.kernels.reservations import give_back
from omfs_daemon.simulate.kernels.reservations import reserve_first
from omfs_daemon.simulate.kernels.reservations import take
from omfs_daemon.simulate.kernels.reservations import withdraw
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.kernels.running import push_end
from omfs_daemon.simulate.kernels.ujfb.running_machine import ASLEEP
from omfs_daemon.simulate.kernels.ujfb.running_machine import CPUS
from omfs_daemon.simulate.kernels.ujfb.running_machine import STOPPED
from omfs_daemon.simulate.kernels.ujfb.running_machine import STOPPING
from omfs_daemon.simulate.kernels.ujfb.running_machine import URGENTS
from omfs_daemon.simulate.kernels.ujfb.running_machine import VICTIMS
from omfs_daemon.simulate.kernels.ujfb.running_machine import Site
from omfs_daemon.simulate.kernels.ujfb.running_machine import keep_until
from omfs_daemon.simulate.kernels.ujfb.running_machine import no_victim
from omfs_daemon.simulate.kernels.ujfb.running_machine import note_stretch
from omfs_daemon.simulate.kernels.ujfb.running_machine import run_on
from omfs_daemon.simulate.kernels.ujfb.running_machine import set_until
from omfs_daemon.simulate.kernels.ujfb.running_machine import start
from omfs_daemon.simulate.kernels.ujfb.allocation_log import LOST
from omfs_daemon.simulate.kernels.ujfb.allocation_log import STOP
from omfs_daemon.simulate.kernels.ujfb.allocation_log import WORK
from omfs_daemon.simulate.kernels.ujfb.allocation_log import Log
from omfs_daemon.simulate.kernels.ujfb.allocation_log import note
from omfs_daemon.simulate.kernels.ujfb.unit_owners import NOBODY
from omfs_daemon.simulate.kernels.ujfb.unit_owners import hand_over
from omfs_daemon.simulate.kernels.ujfb.unit_owners import lend
from omfs_daemon.simulate.kernels.ujfb.unit_owners import occupy
from omfs_daemon.simulate.workload.workload import Ints


@part
def leave_queue(site: Site, job: int) -> None:
    """The urgent job waits no longer."""
    kept = 0
    for at in range(site.size[URGENTS]):
        if site.urgents[at] != job:
            site.urgents[kept] = site.urgents[at]
            kept += 1
    site.size[URGENTS] = kept


@part
def serve_urgent(site: Site, log: Log, now: float, by_slowdown: bool) -> None:
    """Start urgent jobs as far as that is possible; those that must wait get a reservation before all regular jobs."""
    if by_slowdown:
        _put_in_order(site, now)
    queue = site.urgents[: site.size[URGENTS]].copy()
    for job in queue:
        if _make_room(site, log, job, now):
            leave_queue(site, job)
        elif not by_slowdown:
            break
    for job in site.urgents[: site.size[URGENTS]]:
        if site.book.entries[job].reserved == np.inf:
            reserve_first(site.book, job, now)


@part
def _put_in_order(site: Site, now: float) -> None:
    """The urgent queue by the slowdown that each would have if it started now; it was nearly in order before."""
    queue = site.urgents
    for at in range(1, site.size[URGENTS]):
        job = queue[at]
        slowdown = _slowdown(site, job, now)
        while at > 0:
            other = _slowdown(site, queue[at - 1], now)
            if other > slowdown or (other == slowdown and queue[at - 1] < job):
                break
            queue[at] = queue[at - 1]
            at -= 1
        queue[at] = job


@part
def _slowdown(site: Site, job: int, now: float) -> float:
    """Response over run time, as expected, of a job that starts now."""
    its = site.jobs[job]
    expected = max(float(its.estimate), 1.0)
    return float((now - its.submit + expected) / expected)


@part
def _make_room(site: Site, log: Log, job: int, now: float) -> bool:
    """Start an urgent job, now or as soon as its victims are gone; False if not enough may be stopped."""
    its = site.jobs[job]
    units, wanted = site.units, its.cpus
    missing = wanted - units.spare[0]
    for at in range(site.size[ASLEEP]):
        missing -= units.of[site.asleep[at]].owned - units.of[site.asleep[at]].lent
    if missing > site.size[CPUS]:
        return False
    if its.estimate == 0.0:
        missing = 0  # nobody is stopped for a job of no length
    victims = _victims(site, missing)
    if missing > 0 and len(victims) == 0:
        return False
    if site.book.entries[job].reserved < np.inf:
        withdraw(site.book, job)
    if its.estimate == 0.0:
        start(site, job, now)
        return True
    sleepers = site.asleep[: site.size[ASLEEP]].copy()
    begin = _stop(site, log, victims, now)
    wanted -= occupy(units, job, wanted)
    for other in sleepers:
        got = lend(units, other, job, wanted)
        if got:
            begin = max(begin, site.jobs[other].gone)
            wanted -= got
    for other in victims:
        if site.jobs[other].state == STOPPED:
            wanted -= lend(units, other, job, wanted)
        else:
            got = hand_over(units, other, job, wanted)
            give_back(site.book, now, site.jobs[other].until, got)
            wanted -= got
            if site.jobs[other].state == STOPPING and site.jobs[other].gone > site.jobs[other].until:
                set_until(site, other, site.jobs[other].gone, now)
    until = begin + its.estimate
    take(site.book, now, until, units.of[job].owned, now)
    its.start = begin
    run_on(site, job, begin, begin, until)
    unit = units.of[job].first_borrowed
    while unit != NOBODY:
        keep_until(site, units.all[unit].home, until, now)
        unit = units.all[unit].next_borrowed
    return True


@part
def _victims(site: Site, missing: int) -> Ints:
    """Longest remaining first (section IV-B), then who started last; nobody who is not needed; none if all are not
    enough, or the swap area is too small."""
    chosen, count, rest = site.victims[: site.size[VICTIMS]].copy(), 0, site.size[VICTIMS]
    area = site.area - site.swapped[0]
    while missing > 0 and count < rest:
        best = count
        for at in range(count + 1, rest):
            if _goes_before(site, chosen[at], chosen[best]):
                best = at
        job = chosen[best]
        its = site.jobs[job]
        if its.size <= area:
            area -= its.size
            missing -= its.cpus
            chosen[best], chosen[count] = chosen[count], job
            count += 1
        else:
            rest -= 1
            chosen[best] = chosen[rest]
    if missing > 0:
        return np.empty(0, np.int64)
    chosen = chosen[:count]
    needed = np.ones(count, np.bool_)
    for at in range(count - 1, -1, -1):
        if missing + site.jobs[chosen[at]].cpus <= 0:
            missing += site.jobs[chosen[at]].cpus
            needed[at] = False
    return chosen[needed]


@part
def _goes_before(site: Site, job: int, other: int) -> bool:
    """Whether the one is stopped rather than the other."""
    its = site.jobs[job]
    if its.until != site.jobs[other].until:
        return bool(its.until > site.jobs[other].until)
    if its.since != site.jobs[other].since:
        return bool(its.since > site.jobs[other].since)
    return job > other


@part
def _stop(site: Site, log: Log, victims: Ints, now: float) -> float:
    """Stop these jobs together; returns when the last one is gone (the preemption delay: UJFB, Equation 3).

    They compute until the signal comes. One that is done by then simply ends.
    """
    signal = now + site.latency if len(victims) else now
    begin = now
    stopped, count = np.empty(len(victims), np.int64), 0
    for job in victims:
        if site.jobs[job].ends <= signal:
            begin = max(begin, site.jobs[job].ends)
        else:
            stopped[count] = job
            count += 1
    gone = signal + set_costs.set_seconds(stopped[:count], site.jobs.stop, site.jobs.queueing, site.jobs.pinned)
    for job in victims:
        no_victim(site, job)
    for at in range(count):
        job = int(stopped[at])
        its = site.jobs[job]
        begin = gone
        computed = max(0.0, signal - its.computing)
        note_stretch(site, log, job, signal, WORK if its.keeps else LOST)
        note(log, job, signal, gone, STOP)
        its.stops += 1
        its.gone = gone
        its.done = its.done + computed if its.keeps else 0.0
        until = its.until if its.until > signal else corrected(its.planned, 0.0, signal)
        kept = until - max(signal, its.computing)
        its.left = kept if its.keeps else its.estimate
        if its.pinned:
            its.state = STOPPED
            site.swapped[0] += its.size
            site.asleep[site.size[ASLEEP]] = job
            site.size[ASLEEP] += 1
        else:
            its.state = STOPPING
            push_end(site.releases, gone, job)
    return begin
