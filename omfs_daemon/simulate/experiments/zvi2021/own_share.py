"""How long jobs and accounts wait for what is their own: the promise of OMFS, measured on any outcome.

A job waits *for its own share* while it does not hold CPUs although it would fit into what its account is missing of
its entitlement: ``job.cpus <= entitled - held`` (Zvi & Oren, Algorithm 1, line 28, as seen from outside). What
``fairness.py`` counts is more: there an account is below even if nothing that waits fits into what it is missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.results.timeline import held_units


class OwnShare(NamedTuple):
    """seconds    one entry per job: the longest time without a break that it waited for its account's own share
    until      one entry per job: when that ended, in seconds; 0 without such a wait
    total      seconds, one entry per account: how long at least one job of it did
    spells     one entry per account: how often that began
    longest    seconds, one entry per account: its longest spell
    """

    seconds: Floats
    until: Floats
    total: Floats
    spells: Ints
    longest: Floats


class _Times(NamedTuple):
    """Segments of time; one entry per segment."""

    job: Ints
    begin: Floats
    end: Floats


def own_share(outcome: Outcome, owner: Ints, entitled: Ints) -> OwnShare:
    """``owner``: the account of each job; ``entitled``: the units (CPUs, or whole nodes) of each account."""
    width = held_units(outcome).astype(np.int64)
    waits, held = _waits(outcome), outcome.segments
    found = OwnShare(
        seconds=np.zeros(len(owner)),
        until=np.zeros(len(owner)),
        total=np.zeros(len(entitled)),
        spells=np.zeros(len(entitled), dtype=np.int64),
        longest=np.zeros(len(entitled)),
    )
    for account, owned in enumerate(entitled.tolist()):
        asking = (owner[waits.job] == account) & (width[waits.job] <= owned)
        holding = owner[held.job] == account
        if asking.any():
            _of_account(
                found,
                account,
                owned,
                width,
                _Times(waits.job[asking], waits.begin[asking], waits.end[asking]),
                _Times(held.job[holding], held.begin[holding], held.end[holding]),
            )
    return found


def _waits(outcome: Outcome) -> _Times:
    """When jobs that were started held no CPUs: before their first segment, and between two of them."""
    held = outcome.segments
    order = np.lexsort((held.begin, held.job))
    job, begin, end = held.job[order], held.begin[order], held.end[order]
    is_first = np.diff(job, prepend=-1) != 0
    since = np.where(is_first, outcome.workload.submit[job], np.roll(end, 1))
    waited = begin > since
    return _Times(job[waited], since[waited], begin[waited])


def _of_account(found: OwnShare, account: int, owned: int, width: Ints, waits: _Times, held: _Times) -> None:
    """One account's figures, put into ``found``. Between two of ``times`` nothing changes."""
    times = np.unique(np.concatenate((waits.begin, waits.end, held.begin, held.end)))
    room = owned - _level(times, held, width[held.job])
    is_owed = np.zeros(len(times) - 1, dtype=np.bool_)
    for cpus in np.unique(width[waits.job]).tolist():
        alike = width[waits.job] == cpus
        these = _Times(waits.job[alike], waits.begin[alike], waits.end[alike])
        fits = room >= cpus
        is_owed |= fits & (_level(times, these, np.ones(len(these.job), dtype=np.int64)) > 0)
        _note_longest(found, times, fits, these)
    starts = np.flatnonzero(_begins(is_owed))
    if len(starts):
        owed = np.where(is_owed, np.diff(times), 0.0)
        found.total[account] = owed.sum()
        found.spells[account] = len(starts)
        found.longest[account] = np.add.reduceat(owed, starts).max()


def _level(times: Floats, segments: _Times, amount: Ints) -> Ints:
    """The sum of all segments between each two times."""
    changes = np.zeros(len(times), dtype=np.int64)
    np.add.at(changes, np.searchsorted(times, segments.begin), amount)
    np.add.at(changes, np.searchsorted(times, segments.end), -amount)
    return np.cumsum(changes)[:-1]


def _note_longest(found: OwnShare, times: Floats, fits: Bools, waits: _Times) -> None:
    """For each wait, the longest time in it that ``fits`` held without a break, if it is its job's longest."""
    first, last = np.searchsorted(times, waits.begin), np.searchsorted(times, waits.end)
    since = np.maximum.accumulate(np.where(_begins(fits), times[:-1], -np.inf))
    so_far = np.concatenate(((0,), np.cumsum(fits)))
    for wait in np.flatnonzero(so_far[last] > so_far[first]).tolist():
        part = slice(first[wait], last[wait])
        upto = times[part.start + 1 : part.stop + 1]
        lasted = np.where(fits[part], upto - np.maximum(since[part], waits.begin[wait]), 0.0)
        longest, job = int(np.argmax(lasted)), waits.job[wait]
        if lasted[longest] > found.seconds[job]:
            found.seconds[job], found.until[job] = lasted[longest], upto[longest]


def _begins(holds: Bools) -> Bools:
    """Where something that did not hold before begins to."""
    return holds & ~np.concatenate(((False,), holds[:-1]))
