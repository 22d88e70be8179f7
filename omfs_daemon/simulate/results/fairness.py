"""How long accounts with demand stayed below what they own.

An account's demand at a moment is the CPUs of its running jobs and of those that wait (submitted or preempted, and not
holding CPUs). Below: it holds less than min(entitled, demand). A waiting job wider than the whole entitlement is no
demand on it: such a job may only run on idle CPUs (OMFS, Algorithm 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.results.timeline import held_units, unit_cpus


class Fairness(NamedTuple):
    """demand_hours     how long it had demand
    below_hours      how long of that it was below
    spells           how often that began
    longest_hours    its longest spell
    below_cpu_hours  what was missing, times how long
    """

    demand_hours: float
    below_hours: float
    spells: int
    longest_hours: float
    below_cpu_hours: float


class _Intervals(NamedTuple):
    """Times between two changes of one account, in order of account and time; none is empty."""

    owner: Ints
    seconds: Floats
    held: Floats
    demand: Floats


def fairness(outcome: Outcome, owner: Ints, entitled: Ints) -> list[Fairness]:
    """For each account: ``owner`` is the account of each job, ``entitled`` the units (CPUs, or whole nodes) of each
    account."""
    spans = _intervals(outcome, owner, entitled)
    missing = np.maximum(np.minimum(entitled[spans.owner], spans.demand) - spans.held, 0.0)
    below = missing > 0

    def hours(weights: Floats | Bools) -> Floats:
        return np.bincount(spans.owner, weights=weights * spans.seconds, minlength=len(entitled)) / HOUR

    spells, longest = _spells(spans, below, len(entitled))
    missing_hours = hours(missing) * unit_cpus(outcome.machine)
    columns = (hours(spans.demand > 0), hours(below), spells, longest / HOUR, missing_hours)
    return [Fairness(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _intervals(outcome: Outcome, owner: Ints, entitled: Ints) -> _Intervals:
    jobs, segments = np.flatnonzero(~outcome.rejected), outcome.segments
    held_by = held_units(outcome)
    last = max(segments.end.max(initial=0.0), outcome.workload.submit.max(initial=0.0))
    asking = jobs[held_by[jobs] <= entitled[owner[jobs]]]
    holding = np.arange(len(segments))
    wide = holding[held_by[segments.job] > entitled[owner[segments.job]]]
    leave = np.where(np.isnan(outcome.finish), last, outcome.finish)

    # Four kinds of change: jobs come and go (demand), segments begin and end (held; of wide jobs demand too).
    job = np.concatenate((asking, asking, segments.job, segments.job))
    time = np.concatenate((outcome.workload.submit[asking], leave[asking], segments.begin, segments.end))
    sign = np.repeat((1.0, -1.0, 1.0, -1.0), (len(asking), len(asking), len(segments), len(segments)))
    is_held = np.arange(len(job)) >= 2 * len(asking)
    is_demand = ~is_held
    is_demand[2 * len(asking) + wide] = True
    is_demand[2 * len(asking) + len(segments) + wide] = True

    order = np.lexsort((time, owner[job]))
    who, when, change = owner[job][order], time[order], (sign * held_by[job])[order]
    # Each account's changes add up to 0, so the sums of the next one begin at 0 by themselves.
    held, demand = np.cumsum(change * is_held[order]), np.cumsum(change * is_demand[order])
    kept = np.flatnonzero((who[1:] == who[:-1]) & (when[1:] > when[:-1]))
    return _Intervals(who[kept], when[kept + 1] - when[kept], held[kept], demand[kept])


def _spells(spans: _Intervals, below: Bools, accounts: int) -> tuple[Ints, Floats]:
    """How many runs of intervals below each account has, and the seconds of its longest one."""
    starts = below & np.concatenate(((True,), ~below[:-1] | (spans.owner[1:] != spans.owner[:-1])))
    first, longest = np.flatnonzero(starts), np.zeros(accounts)
    if len(first):
        np.maximum.at(longest, spans.owner[first], np.add.reduceat(np.where(below, spans.seconds, 0.0), first))
    return np.bincount(spans.owner[first], minlength=accounts), longest
