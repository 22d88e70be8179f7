"""Several sites, one of which each job is sent to when it is submitted (Murata et al., section III)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels import sites_kernel as compiled

CHOICES = ("round-robin", "shortest-queue", "history", "oracle")
"""How a site is chosen, in the order of their numbers."""


@dataclass(frozen=True, slots=True)
class Booking:
    """So many processors are reserved for others from ``begin`` to ``end``, in seconds."""

    begin: float
    end: float
    processors: int


@dataclass(frozen=True, slots=True)
class Site:
    """A machine. ``takes_reservations``: a job is given the first gap that holds its limit, instead of a place in a
    queue that is served first come, first served. ``longest``: the longest limit of a job that it takes, in seconds; a
    job without a limit fits into no gap."""

    name: str
    processors: int
    takes_reservations: bool = False
    bookings: tuple[Booking, ...] = ()
    longest: float = inf


@dataclass(frozen=True, slots=True)
class SiteChoice:
    """How jobs are sent to sites.

    choose          one of ``CHOICES``
    counts_running  whether the rest of running jobs counts in an estimate, or, as the paper's text has it, only those
                    that wait
    """

    choose: str
    counts_running: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class SentJobs:
    """One entry per job. site: index, -1: no site can hold it, or it did not come; submit, start: seconds, nan: never;
    estimates: seconds to its start as estimated at its submission, one column a site, inf: it does not fit."""

    site: Ints
    submit: Floats
    start: Floats
    estimates: Floats


_LAST = 1e15
"""Seconds; finite, so that the end of a reservation is."""


def placed(
    sites: Sequence[Site],
    jobs: compiled.SiteJobs,
    choice: SiteChoice,
    *,
    population: int = 0,
    until: float = inf,
    known: Sequence[float] = (),
) -> SentJobs:
    """Send the jobs to the sites.

    population  above 0: so many jobs are submitted at time 0, and another whenever one ends
    until       seconds; nothing happens later
    known       run time of a job of each kind that had ended before, in seconds; (): nothing had
    """
    kinds = int(jobs.kind.max(initial=-1)) + 1
    total, count = np.zeros(kinds + 1), np.zeros(kinds + 1, dtype=np.int64)
    if known:
        total[:], count[:] = (*known, sum(known)), (*[1] * kinds, kinds)
    booked = [(index, booking) for index, site in enumerate(sites) for booking in site.bookings]
    plan = compiled.SiteMap(
        np.array([site.processors for site in sites], dtype=np.int64),
        np.array([min(site.longest, _LAST) if site.takes_reservations else site.longest for site in sites]),
        np.array([site.takes_reservations for site in sites], dtype=np.bool_),
        np.array([index for index, _ in booked], dtype=np.int64),
        np.array([booking.begin for _, booking in booked], dtype=np.float64),
        np.array([booking.end for _, booking in booked], dtype=np.float64),
        np.array([booking.processors for _, booking in booked], dtype=np.int64),
    )
    terms = compiled.SiteTerms(CHOICES.index(choice.choose), choice.counts_running, population, float(until))
    return SentJobs(*compiled.sites_kernel(jobs, plan, terms, compiled.EndedRuns(total, count)))
