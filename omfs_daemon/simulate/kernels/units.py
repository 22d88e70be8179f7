"""Which units (CPUs of a flat machine, or nodes) belong to which job.

A unit has at most one *home*: the job that it was given to, and which keeps it while swapped out, for a swapped
process comes back to the same engine only (UJFB, section IV-A). Meanwhile an urgent job may compute on it, its
*borrower*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.simulate.kernels.compiling import part
from omfs_daemon.simulate.workload import Ints

NOBODY = -1


class Units(NamedTuple):
    """By unit: home, borrower, and the next unit of the same home and of the same borrower. By job: the first ones,
    how many it is home to, and how many of those are lent. ``free``: a stack of units without a home, of height
    ``spare[0]``.
    """

    home: Ints
    borrower: Ints
    next_at_home: Ints
    next_borrowed: Ints
    first_at_home: Ints
    first_borrowed: Ints
    owned: Ints
    lent: Ints
    free: Ints
    spare: Ints


@part
def new_units(count: int, jobs: int) -> Units:
    """All free. The lowest numbers are given out first."""
    return Units(
        np.full(count, NOBODY),
        np.full(count, NOBODY),
        np.full(count, NOBODY),
        np.full(count, NOBODY),
        np.full(jobs, NOBODY),
        np.full(jobs, NOBODY),
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.int64),
        np.arange(count - 1, -1, -1),
        np.array([count]),
    )


@part
def _settle(units: Units, unit: int, job: int) -> None:
    units.home[unit] = job
    units.next_at_home[unit] = units.first_at_home[job]
    units.first_at_home[job] = unit
    units.owned[job] += 1


@part
def occupy(units: Units, job: int, wanted: int) -> int:
    """Give a job free units, as many as it wants or there are; returns how many."""
    given = min(wanted, int(units.spare[0]))
    for _ in range(given):
        units.spare[0] -= 1
        _settle(units, units.free[units.spare[0]], job)
    return given


@part
def vacate(units: Units, job: int) -> int:
    """Free what is left of a job's own units, none of them lent; returns how many."""
    unit = units.first_at_home[job]
    while unit != NOBODY:
        units.home[unit] = NOBODY
        units.free[units.spare[0]] = unit
        units.spare[0] += 1
        unit = units.next_at_home[unit]
    given = int(units.owned[job])
    units.first_at_home[job], units.owned[job] = NOBODY, 0
    return given


@part
def hand_over(units: Units, giver: int, taker: int, wanted: int) -> int:
    """Make units of one job the other's own, as many as it wants or there are; returns how many."""
    given = min(wanted, int(units.owned[giver]))
    for _ in range(given):
        unit = units.first_at_home[giver]
        units.first_at_home[giver] = units.next_at_home[unit]
        units.owned[giver] -= 1
        _settle(units, unit, taker)
    return given


@part
def lend(units: Units, owner: int, borrower: int, wanted: int) -> int:
    """Lend units of a job that does not run, as many as are wanted or not lent already; returns how many."""
    given = 0
    unit = units.first_at_home[owner]
    while unit != NOBODY and given < wanted:
        if units.borrower[unit] == NOBODY:
            units.borrower[unit] = borrower
            units.next_borrowed[unit] = units.first_borrowed[borrower]
            units.first_borrowed[borrower] = unit
            given += 1
        unit = units.next_at_home[unit]
    units.lent[owner] += given
    return given


@part
def bring_back(units: Units, borrower: int) -> None:
    """End all loans of a borrower."""
    unit = units.first_borrowed[borrower]
    while unit != NOBODY:
        units.borrower[unit] = NOBODY
        units.lent[units.home[unit]] -= 1
        unit = units.next_borrowed[unit]
    units.first_borrowed[borrower] = NOBODY
