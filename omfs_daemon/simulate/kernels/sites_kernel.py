"""Jobs that are sent to one of several sites when they are submitted (Murata et al., section III)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel, part
from omfs_daemon.simulate.kernels.profile import Profile, change, earliest, new_profile
from omfs_daemon.simulate.kernels.running import Ends, corrected, first_end, no_ends, pop_end, push_end

ROUND_ROBIN, SHORTEST_QUEUE, HISTORY, ORACLE = range(4)
"""How a site is chosen: the next one in turn, the one with the fewest jobs, or the one with the earliest estimated
start, by the means of ended jobs or by the true run times."""

NOWHERE = -1


class SiteJobs(NamedTuple):
    """Jobs in order of submission; ``kind`` numbers their command names, ``limit`` is what a reservation is made for;
    submit, run, limit: seconds."""

    submit: Floats
    cpus: Ints
    run: Floats
    limit: Floats
    kind: Ints


class SiteMap(NamedTuple):
    """The sites, in order, with the longest limit of a job that each takes, in seconds; and what is reserved for
    others: of which site, from when to when, how many CPUs."""

    cpus: Ints
    longest: Floats
    is_reserved: Bools
    site: Ints
    begin: Floats
    end: Floats
    booked: Ints


class SiteTerms(NamedTuple):
    """choose      one of the four ways
    counts_running whether the rest of running jobs counts in an estimate
    population     above 0: so many jobs are submitted at time 0, and another whenever one ends; 0: as they are recorded
    until          seconds; nothing happens later
    """

    choose: int
    counts_running: bool
    population: int
    until: float


class EndedRuns(NamedTuple):
    """Run times of ended jobs: sum in seconds and count by kind; the last entry is for all kinds."""

    total: Floats
    number: Ints


class _Sites(NamedTuple):
    """What is where: jobs that wait (linked from first to last by ``behind``) and run at each site, free CPUs, jobs
    that are there; the reservations of each; a heap for the starts that an estimate goes through."""

    first: Ints
    last: Ints
    behind: Ints
    running: Ints
    runs: Ints
    free: Ints
    present: Ints
    time: Floats
    open: Ints
    ends: Ints
    least: Ints
    most: Ints
    planned: Ends


@kernel
def sites_kernel(
    jobs: SiteJobs, sites: SiteMap, terms: SiteTerms, known: EndedRuns
) -> tuple[Ints, Floats, Floats, Floats]:
    """Where each job went (``NOWHERE``: no site can hold it, or it did not come), when it was submitted, when it
    started (nan: never), and the estimated seconds from its submission to its start at each site (inf: it does not
    fit). Queue sites serve first come, first served; reservation sites start a job in the first gap of its limit.

    ``known`` is what had ended before, and gains what ends. At one instant come ends, then submissions.
    """
    count, places = len(jobs.cpus), len(sites.cpus)
    site, submit = np.full(count, NOWHERE), np.full(count, np.nan)
    start, estimates = np.full(count, np.nan), np.full((count, places), np.inf)
    state = _nothing_yet(jobs, sites)
    ends = no_ends(count)
    arrived, turn, due, now = 0, 0, terms.population, 0.0
    while True:
        coming = np.inf
        if arrived < count and (terms.population == 0 or due > 0):
            coming = jobs.submit[arrived] if terms.population == 0 else now
        now = min(first_end(ends), coming)
        if now > terms.until or now == np.inf:
            return site, submit, start, estimates
        while first_end(ends) <= now:
            job = pop_end(ends)
            _end(jobs, sites, state, known, job, site[job], start[job])
            due += 1
            _start_waiting(jobs, sites, state, site[job], now, start, ends)
        while arrived < count and (jobs.submit[arrived] <= now if terms.population == 0 else due > 0):
            job = arrived
            arrived += 1
            due -= 1
            submit[job] = now
            at = NOWHERE
            for place in range(places):
                if jobs.cpus[job] <= sites.cpus[place] and jobs.limit[job] <= sites.longest[place]:
                    estimates[job, place] = _estimate(jobs, sites, state, terms, known, job, place, now, start)
                    if terms.choose == ROUND_ROBIN:
                        # Those from the turn on come before those that had theirs.
                        better = at == NOWHERE or (place >= turn and at < turn)
                    elif terms.choose == SHORTEST_QUEUE:
                        better = at == NOWHERE or state.present[place] < state.present[at]
                    else:
                        better = at == NOWHERE or estimates[job, place] < estimates[job, at]
                    if better:
                        at = place
            if at == NOWHERE:
                continue
            turn = (at + 1) % places
            site[job] = at
            state.present[at] += 1
            if sites.is_reserved[at]:
                start[job] = now + estimates[job, at]
                change(_reservations(state, at), start[job], start[job] + jobs.limit[job], -jobs.cpus[job])
                push_end(ends, start[job] + jobs.run[job], job)
            else:
                if state.first[at] == NOWHERE:
                    state.first[at] = job
                else:
                    state.behind[state.last[at]] = job
                state.last[at] = job
                _start_waiting(jobs, sites, state, at, now, start, ends)


@part
def _nothing_yet(jobs: SiteJobs, sites: SiteMap) -> _Sites:
    count, places = len(jobs.cpus), len(sites.cpus)
    room = 2 * (count + len(sites.site)) + 2 if sites.is_reserved.any() else 1
    empty = new_profile(0, room)
    length, blocks = len(empty.time), len(empty.least)
    state = _Sites(
        np.full(places, NOWHERE),
        np.full(places, NOWHERE),
        np.full(count, NOWHERE),
        np.empty((places, min(count, sites.cpus.max())), np.int64),
        np.zeros(places, np.int64),
        sites.cpus.copy(),
        np.zeros(places, np.int64),
        np.empty((places, length)),
        np.empty((places, length), np.int64),
        np.empty((places, 2), np.int64),
        np.empty((places, blocks), np.int64),
        np.empty((places, blocks), np.int64),
        no_ends(2 * count + 1),
    )
    for place in range(places):
        fresh = new_profile(sites.cpus[place], room)
        state.time[place], state.open[place], state.ends[place] = fresh.time, fresh.free, fresh.ends
        state.least[place], state.most[place] = fresh.least, fresh.most
    for row in range(len(sites.site)):
        change(_reservations(state, sites.site[row]), sites.begin[row], sites.end[row], -sites.booked[row])
    return state


@part
def _reservations(state: _Sites, place: int) -> Profile:
    """A view of the reservation map of a site."""
    return Profile(state.time[place], state.open[place], state.ends[place], state.least[place], state.most[place])


@part
def _end(jobs: SiteJobs, sites: SiteMap, state: _Sites, known: EndedRuns, job: int, place: int, start: float) -> None:
    """The job has ended: it is learned from, and what it held is free."""
    for row in (jobs.kind[job], len(known.number) - 1):
        known.total[row] += jobs.run[job]
        known.number[row] += 1
    state.present[place] -= 1
    if sites.is_reserved[place]:
        change(_reservations(state, place), start + jobs.run[job], start + jobs.limit[job], jobs.cpus[job])
        return
    state.free[place] += jobs.cpus[job]
    at = 0
    while state.running[place, at] != job:
        at += 1
    state.runs[place] -= 1
    state.running[place, at] = state.running[place, state.runs[place]]


@part
def _start_waiting(
    jobs: SiteJobs, sites: SiteMap, state: _Sites, place: int, now: float, start: Floats, ends: Ends
) -> None:
    """Start those at the head of a queue for which there is room."""
    if sites.is_reserved[place]:
        return
    while state.first[place] != NOWHERE and jobs.cpus[state.first[place]] <= state.free[place]:
        job = state.first[place]
        state.first[place] = state.behind[job]
        state.free[place] -= jobs.cpus[job]
        state.running[place, state.runs[place]] = job
        state.runs[place] += 1
        start[job] = now
        push_end(ends, now + jobs.run[job], job)


@part
def _length(jobs: SiteJobs, known: EndedRuns, oracle: bool, job: int) -> float:
    """Seconds that a job is expected to run: the mean of its kind, else of all jobs, else 0 (section III-A)."""
    if oracle:
        return float(jobs.run[job])
    for row in (jobs.kind[job], len(known.number) - 1):
        if known.number[row] > 0:
            return float(known.total[row] / known.number[row])
    return 0.0


@part
def _estimate(
    jobs: SiteJobs, sites: SiteMap, state: _Sites, terms: SiteTerms, known: EndedRuns, job: int, place: int, now: float,
    start: Floats,
) -> float:  # fmt: skip
    """Seconds to the start of a new job: at a reservation site to the first gap, at a queue site by placing the queue
    in order; with one CPU that is the sum of the lengths."""
    if sites.is_reserved[place]:
        return earliest(_reservations(state, place), jobs.cpus[job], jobs.limit[job], now, np.inf, np.inf) - now
    oracle, planned = terms.choose == ORACLE, state.planned
    planned.size[0] = 0
    free = sites.cpus[place]
    if terms.counts_running:
        free = state.free[place]
        for row in range(state.runs[place]):
            other = state.running[place, row]
            push_end(planned, corrected(start[other], _length(jobs, known, oracle, other), now), other)
    time, other = now, state.first[place]
    while True:
        placed = job if other == NOWHERE else other
        while free < jobs.cpus[placed]:
            time = max(time, planned.time[0])
            free += jobs.cpus[pop_end(planned)]
        if other == NOWHERE:
            return time - now
        free -= jobs.cpus[other]
        push_end(planned, time + _length(jobs, known, oracle, other), other)
        other = state.behind[other]
