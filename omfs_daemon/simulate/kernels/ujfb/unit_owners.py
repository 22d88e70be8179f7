"""Which units (CPUs of a flat machine, or nodes) belong to which job.

A unit has at most one *home*: the job that it was given to, and which keeps it while swapped out, for a swapped
process resumes on the same engine only (UJFB, section IV-A). Meanwhile an urgent job may compute on it, its
*borrower*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.simulate.kernels.compiling import Records, part

NOBODY = -1


UNIT = np.dtype([(name, np.int64) for name in ("home", "borrower", "next_at_home", "next_borrowed")])
"""A unit; the last two are the next unit of the same home and of the same borrower."""

HOLDER = np.dtype([(name, np.int64) for name in ("first_at_home", "first_borrowed", "owned", "lent")])
"""A job: its first unit, the first one that it borrows, how many are its own, and how many of those are lent."""


class Units(NamedTuple):
    """``all``: records of ``UNIT``, by unit; ``of``: of ``HOLDER``, by job; ``free``: a stack of units without a home,
    of height ``spare[0]``."""

    all: Records
    of: Records
    free: Ints
    spare: Ints


@part
def new_units(count: int, jobs: int) -> Units:
    """All free. The lowest numbers are given out first."""
    units = Units(np.empty(count, UNIT), np.empty(jobs, HOLDER), np.arange(count - 1, -1, -1), np.array([count]))
    for unit in range(count):
        units.all[unit].home = units.all[unit].borrower = NOBODY
    for job in range(jobs):
        units.of[job].first_at_home = units.of[job].first_borrowed = NOBODY
        units.of[job].owned = units.of[job].lent = 0
    return units


@part
def _settle(units: Units, unit: int, job: int) -> None:
    units.all[unit].home = job
    units.all[unit].next_at_home = units.of[job].first_at_home
    units.of[job].first_at_home = unit
    units.of[job].owned += 1


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
    unit = units.of[job].first_at_home
    while unit != NOBODY:
        units.all[unit].home = NOBODY
        units.free[units.spare[0]] = unit
        units.spare[0] += 1
        unit = units.all[unit].next_at_home
    given = int(units.of[job].owned)
    units.of[job].first_at_home, units.of[job].owned = NOBODY, 0
    return given


@part
def hand_over(units: Units, giver: int, taker: int, wanted: int) -> int:
    """Make units of one job the other's own, as many as it wants or there are; returns how many."""
    given = min(wanted, int(units.of[giver].owned))
    for _ in range(given):
        unit = units.of[giver].first_at_home
        units.of[giver].first_at_home = units.all[unit].next_at_home
        units.of[giver].owned -= 1
        _settle(units, unit, taker)
    return given


@part
def lend(units: Units, owner: int, borrower: int, wanted: int) -> int:
    """Lend units of a job that does not run, as many as are wanted or not lent already; returns how many."""
    given = 0
    unit = units.of[owner].first_at_home
    while unit != NOBODY and given < wanted:
        if units.all[unit].borrower == NOBODY:
            units.all[unit].borrower = borrower
            units.all[unit].next_borrowed = units.of[borrower].first_borrowed
            units.of[borrower].first_borrowed = unit
            given += 1
        unit = units.all[unit].next_at_home
    units.of[owner].lent += given
    return given


@part
def end_loans(units: Units, borrower: int) -> None:
    """End all loans of a borrower."""
    unit = units.of[borrower].first_borrowed
    while unit != NOBODY:
        units.all[unit].borrower = NOBODY
        units.of[units.all[unit].home].lent -= 1
        unit = units.all[unit].next_borrowed
    units.of[borrower].first_borrowed = NOBODY
