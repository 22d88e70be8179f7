"""UJFB (Agung et al. 2021, section IV-B): urgent jobs first, by stopping regular ones; these are backfilled
conservatively.

An urgent job takes what is free, whatever is reserved there; then what swapped-out jobs keep and do not use; then it
stops regular jobs, longest remaining first, none needlessly. If all of that is not enough, it waits in the urgent
queue, before all regular jobs. Urgent jobs are never stopped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.simulate.costs import StopCosts
from omfs_daemon.simulate.kernels.compiling import kernel, part
from omfs_daemon.simulate.kernels.profile import advance
from omfs_daemon.simulate.kernels.reservations import (
    Book,
    compress,
    give_back,
    new_book,
    next_due,
    next_start,
    reserve,
    reserve_first,
    take,
    withdraw,
)
from omfs_daemon.simulate.kernels.running import Ends, corrected, first_end, no_ends, pop_end, push_end
from omfs_daemon.simulate.kernels.stretches import LOST, RESUME, STOP, WORK, Log, new_log, note, with_room
from omfs_daemon.simulate.kernels.units import (
    NOBODY,
    Units,
    bring_back,
    hand_over,
    lend,
    new_units,
    occupy,
    vacate,
)
from omfs_daemon.simulate.workload import Bools, Floats, Ints

UNSEEN, WAITING, RUNNING, STOPPING, STOPPED, DONE = 0, 1, 2, 3, 4, 5

FIRST_COME, BY_SLOWDOWN = 0, 1
"""Orders of the urgent queue: strictly as they came; or who is worst off first, and a smaller one may pass by."""


class Site(NamedTuple):
    """Everything that changes; arrays have one entry a job unless said otherwise.

    since, computing  when the present stretch began, and from when on the job computes in it
    done, left   seconds of work that are safe, and that are still expected to be needed (of a stopped job)
    until        until when the book counts the job's own units as taken
    ends         when the job will be done if it is not stopped
    victims, place  the running jobs that may be stopped, and where each of them stands there
    asleep       swapped-out jobs
    urgents      the urgent queue, in order of arrival
    size         how many are in victims, asleep, urgents; and CPUs of all in victims
    swapped      bytes in the swap area (one entry)
    """

    cpus: Ints
    run: Floats
    estimate: Floats
    costs: StopCosts
    book: Book
    units: Units
    finishing: Ends
    overdue: Ends
    releases: Ends
    state: Ints
    since: Floats
    computing: Floats
    done: Floats
    left: Floats
    until: Floats
    ends: Floats
    gone: Floats
    start: Floats
    finish: Floats
    stops: Ints
    victims: Ints
    place: Ints
    asleep: Ints
    urgents: Ints
    size: Ints
    swapped: Floats


_VICTIMS, _ASLEEP, _URGENTS, _CPUS = 0, 1, 2, 3


@kernel
def ujfb(
    submit: Floats,
    cpus: Ints,
    run: Floats,
    estimate: Floats,
    urgent: Bools,
    costs: StopCosts,
    machine: int,
    order: int,
) -> tuple[Floats, Floats, Ints, Log]:
    """Start, finish (nan for jobs wider than the machine), stops of each job, and what held CPUs when."""
    count = len(submit)
    site = _new_site(cpus, run, estimate, urgent, costs, machine)
    log = new_log(count + 16)
    arrived = alive = 0
    while True:
        now = min(first_end(site.finishing), first_end(site.overdue), first_end(site.releases), next_start(site.book))
        if arrived < count:
            now = min(now, submit[arrived])
        if now == np.inf:
            return site.start, site.finish, site.stops, log
        log = with_room(log, 3 * alive + 8)
        advance(site.book.profile, now)
        alive -= _end(site, log, now)
        _release(site, now)
        _correct(site, now)
        while arrived < count and submit[arrived] <= now:
            if cpus[arrived] <= machine:
                alive += 1
                site.state[arrived] = WAITING
                if urgent[arrived]:
                    site.urgents[site.size[_URGENTS]] = arrived
                    site.size[_URGENTS] += 1
                else:
                    reserve(site.book, arrived, now)
            arrived += 1
        if site.size[_URGENTS]:
            _serve_urgent(site, log, submit, now, order)
        if site.size[_ASLEEP]:
            _wake(site, now)
        compress(site.book, now)
        job = next_due(site.book, now)
        while job >= 0:
            if urgent[job]:
                _leave_queue(site, job)
            _start(site, job, now)
            job = next_due(site.book, now)


@part
def _new_site(cpus: Ints, run: Floats, estimate: Floats, urgent: Bools, costs: StopCosts, machine: int) -> Site:
    count = len(cpus)
    # Urgent jobs give way last, then stopped ones (see _release), then all others; among equals the older ones.
    rank = np.arange(count)
    rank[urgent] -= 2 * count
    return Site(
        cpus,
        run,
        estimate,
        costs,
        new_book(machine, cpus, estimate.copy(), rank),
        new_units(machine, count),
        no_ends(2 * count + 16),
        no_ends(2 * count + 16),
        no_ends(count + 1),
        np.zeros(count, np.int64),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.zeros(count),
        np.full(count, np.nan),
        np.full(count, np.nan),
        np.zeros(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.zeros(4, np.int64),
        np.zeros(1),
    )


# -- ends ------------------------------------------------------------------------------------------------
@part
def _end(site: Site, log: Log, now: float) -> int:
    """Jobs that are done go; returns how many."""
    gone = 0
    while first_end(site.finishing) <= now:
        time = first_end(site.finishing)
        job = pop_end(site.finishing)
        if site.state[job] != RUNNING or site.ends[job] != time:
            continue
        _note_stretch(site, log, job, now, WORK)
        site.state[job], site.finish[job] = DONE, now
        _no_victim(site, job)
        bring_back(site.units, job)
        give_back(site.book, now, site.until[job], vacate(site.units, job))
        gone += 1
    return gone


@part
def _note_stretch(site: Site, log: Log, job: int, now: float, use: int) -> None:
    """The present stretch of a running job is over: it was brought back first, then it computed."""
    computing = min(site.computing[job], now)
    note(log, job, site.since[job], computing, RESUME)
    note(log, job, computing, now, use)


@part
def _release(site: Site, now: float) -> None:
    """Killed and checkpointed jobs are gone: what the urgent job does not need of theirs is free, and they wait at the
    head of the regular queue."""
    while first_end(site.releases) <= now:
        job = pop_end(site.releases)
        give_back(site.book, now, site.until[job], vacate(site.units, job))
        site.state[job] = WAITING
        site.book.expected[job] = site.costs.resume[job] + site.left[job]
        if site.book.rank[job] >= 0:
            site.book.rank[job] -= len(site.cpus)
        reserve_first(site.book, job, now)


@part
def _correct(site: Site, now: float) -> None:
    """Jobs that should have ended and have not are expected to end later."""
    while first_end(site.overdue) <= now:
        time = first_end(site.overdue)
        job = pop_end(site.overdue)
        if site.state[job] != RUNNING or site.until[job] != time or site.ends[job] <= now:
            continue
        until = corrected(site.until[job] - site.estimate[job], site.estimate[job], now)
        take(site.book, time, until, site.units.owned[job], now)
        site.until[job] = until
        push_end(site.overdue, until, job)
        unit = site.units.first_borrowed[job]
        while unit != NOBODY:
            _keep_until(site, site.units.home[unit], until, now)
            unit = site.units.next_borrowed[unit]


# -- starts ----------------------------------------------------------------------------------------------
@part
def _start(site: Site, job: int, now: float) -> None:
    """A job whose reserved start has come."""
    occupy(site.units, job, site.cpus[job])
    if np.isnan(site.start[job]):
        site.start[job] = now
    resume = site.costs.resume[job] if site.stops[job] else 0.0
    _run_on(site, job, now, now + resume, now + site.book.expected[job])


@part
def _run_on(site: Site, job: int, now: float, computing: float, until: float) -> None:
    """The job runs, computes from a time on, and is expected to be done at ``until``, for which the book has it."""
    site.state[job], site.since[job], site.computing[job], site.until[job] = RUNNING, now, computing, until
    # With exact estimates both ends must be the same number, not only nearly so.
    exact = site.run[job] == site.estimate[job]
    site.ends[job] = until if exact else computing + (site.run[job] - site.done[job])
    push_end(site.finishing, site.ends[job], job)
    if site.ends[job] > until:
        push_end(site.overdue, until, job)
    if site.costs.stoppable[job]:
        site.place[job] = site.size[_VICTIMS]
        site.victims[site.size[_VICTIMS]] = job
        site.size[_VICTIMS] += 1
        site.size[_CPUS] += site.cpus[job]


@part
def _no_victim(site: Site, job: int) -> None:
    """The job can be stopped no more."""
    at = site.place[job]
    if not site.costs.stoppable[job] or at >= site.size[_VICTIMS] or site.victims[at] != job:
        return
    site.size[_VICTIMS] -= 1
    last = site.victims[site.size[_VICTIMS]]
    site.victims[at], site.place[last] = last, at
    site.size[_CPUS] -= site.cpus[job]


@part
def _wake(site: Site, now: float) -> None:
    """Swapped-out jobs go on whose own units nobody uses any more."""
    kept = 0
    for at in range(site.size[_ASLEEP]):
        job = site.asleep[at]
        if site.units.lent[job] or site.gone[job] > now:
            site.asleep[kept] = job
            kept += 1
            continue
        site.swapped[0] -= site.costs.size[job]
        computing = now + site.costs.resume[job]
        until = computing + site.left[job]
        _set_until(site, job, until, now)
        _run_on(site, job, now, computing, until)
    site.size[_ASLEEP] = kept


@part
def _set_until(site: Site, job: int, until: float, now: float) -> None:
    """The book counts the job's own units as taken until then."""
    if until > site.until[job]:
        take(site.book, max(now, site.until[job]), until, site.units.owned[job], now)
    else:
        give_back(site.book, until, site.until[job], site.units.owned[job])
    site.until[job] = until


@part
def _keep_until(site: Site, job: int, borrowed_until: float, now: float) -> None:
    """A swapped-out job keeps its units while they are lent, and then as long as it still needs."""
    until = borrowed_until + site.costs.resume[job] + site.left[job]
    if until > site.until[job]:
        _set_until(site, job, until, now)


# -- urgent jobs -----------------------------------------------------------------------------------------
@part
def _leave_queue(site: Site, job: int) -> None:
    """The urgent job waits no longer."""
    kept = 0
    for at in range(site.size[_URGENTS]):
        if site.urgents[at] != job:
            site.urgents[kept] = site.urgents[at]
            kept += 1
    site.size[_URGENTS] = kept


@part
def _serve_urgent(site: Site, log: Log, submit: Floats, now: float, order: int) -> None:
    """Start urgent jobs as far as that is possible; those that must wait get a reservation before all regular jobs."""
    if order == BY_SLOWDOWN:
        _put_in_order(site, submit, now)
    queue = site.urgents[: site.size[_URGENTS]].copy()
    for job in queue:
        if _make_room(site, log, job, now):
            _leave_queue(site, job)
        elif order == FIRST_COME:
            break
    for job in site.urgents[: site.size[_URGENTS]]:
        if site.book.reserved[job] == np.inf:
            reserve_first(site.book, job, now)


@part
def _put_in_order(site: Site, submit: Floats, now: float) -> None:
    """The urgent queue by the slowdown that each would have if it started now; it was nearly in order before."""
    queue = site.urgents
    for at in range(1, site.size[_URGENTS]):
        job = queue[at]
        slowdown = _slowdown(site, submit, job, now)
        while at > 0:
            other = _slowdown(site, submit, queue[at - 1], now)
            if other > slowdown or (other == slowdown and queue[at - 1] < job):
                break
            queue[at] = queue[at - 1]
            at -= 1
        queue[at] = job


@part
def _slowdown(site: Site, submit: Floats, job: int, now: float) -> float:
    """Response over run time, as expected, of a job that starts now."""
    expected = max(float(site.estimate[job]), 1.0)
    return (now - submit[job] + expected) / expected


@part
def _make_room(site: Site, log: Log, job: int, now: float) -> bool:
    """Start an urgent job, now or as soon as its victims are gone; False if not enough may be stopped."""
    units, wanted = site.units, site.cpus[job]
    missing = wanted - units.spare[0]
    for at in range(site.size[_ASLEEP]):
        missing -= units.owned[site.asleep[at]] - units.lent[site.asleep[at]]
    if missing > site.size[_CPUS]:
        return False
    victims = _victims(site, missing, now)
    if missing > 0 and len(victims) == 0:
        return False
    if site.book.reserved[job] < np.inf:
        withdraw(site.book, job)
    sleepers = site.asleep[: site.size[_ASLEEP]].copy()
    begin = _stop(site, log, victims, now)
    wanted -= occupy(units, job, wanted)
    for other in sleepers:
        got = lend(units, other, job, wanted)
        if got:
            begin = max(begin, site.gone[other])
            wanted -= got
    for other in victims:
        if site.state[other] == STOPPED:
            wanted -= lend(units, other, job, wanted)
        else:
            got = hand_over(units, other, job, wanted)
            give_back(site.book, now, site.until[other], got)
            wanted -= got
            if site.state[other] == STOPPING and site.gone[other] > site.until[other]:
                _set_until(site, other, site.gone[other], now)
    until = begin + site.estimate[job]
    take(site.book, now, until, units.owned[job], now)
    site.start[job] = begin
    _run_on(site, job, begin, begin, until)
    unit = units.first_borrowed[job]
    while unit != NOBODY:
        _keep_until(site, units.home[unit], until, now)
        unit = units.next_borrowed[unit]
    return True


@part
def _victims(site: Site, missing: int, now: float) -> Ints:
    """Longest remaining first (section IV-B), then who started last; nobody who is not needed; none if all are not
    enough, or the swap area is too small."""
    chosen, count, rest = site.victims[: site.size[_VICTIMS]].copy(), 0, site.size[_VICTIMS]
    area = site.costs.area - site.swapped[0]
    while missing > 0 and count < rest:
        best = count
        for at in range(count + 1, rest):
            if _goes_before(site, chosen[at], chosen[best]):
                best = at
        job = chosen[best]
        if site.costs.size[job] <= area:
            area -= site.costs.size[job]
            missing -= site.cpus[job]
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
        if missing + site.cpus[chosen[at]] <= 0:
            missing += site.cpus[chosen[at]]
            needed[at] = False
    return chosen[needed]


@part
def _goes_before(site: Site, job: int, other: int) -> bool:
    """Whether the one is stopped rather than the other."""
    if site.until[job] != site.until[other]:
        return bool(site.until[job] > site.until[other])
    if site.since[job] != site.since[other]:
        return bool(site.since[job] > site.since[other])
    return job > other


@part
def _stop(site: Site, log: Log, victims: Ints, now: float) -> float:
    """Stop these jobs together; returns when the last one is gone (the preemption delay: UJFB, Equation 3).

    They compute until the signal comes. One that is done by then simply ends.
    """
    costs = site.costs
    signal = now + costs.latency if len(victims) else now
    longest = swapping = writing = 0.0
    last_end = now
    for job in victims:
        if site.ends[job] <= signal:
            last_end = max(last_end, site.ends[job])
            continue
        longest = max(longest, costs.stop[job])
        if costs.pinned[job]:
            swapping += costs.queueing[job]
        else:
            writing += costs.queueing[job]
    begin = now
    gone = signal + max(longest, max(swapping, writing))
    for job in victims:
        _no_victim(site, job)
        if site.ends[job] <= signal:
            begin = max(begin, site.ends[job])
            continue
        begin = gone
        computed = max(0.0, signal - site.computing[job])
        _note_stretch(site, log, job, signal, WORK if costs.keeps[job] else LOST)
        note(log, job, signal, gone, STOP)
        site.stops[job] += 1
        site.gone[job] = gone
        site.done[job] = site.done[job] + computed if costs.keeps[job] else 0.0
        kept = site.until[job] - max(signal, site.computing[job])
        site.left[job] = kept if costs.keeps[job] else site.estimate[job]
        if costs.pinned[job]:
            site.state[job] = STOPPED
            site.swapped[0] += costs.size[job]
            site.asleep[site.size[_ASLEEP]] = job
            site.size[_ASLEEP] += 1
        else:
            site.state[job] = STOPPING
            push_end(site.releases, gone, job)
    return max(begin, last_end)
