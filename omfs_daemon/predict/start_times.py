"""When waiting jobs will start: a list schedule of the queue, once for each of many draws of the run times.

The queue is placed in order. Each job takes the units that are free first: CPUs of nodes that serve the same requests,
generic resources, entitlements. What a job must wait for leaves holes, into which later jobs go that fit (backfill);
the latest few holes of each draw are kept: one of the units that are free first, and one of the others, of their mean
length. Murata et al. (section III-B) add up the run
times of the queue; with one processor this is that sum, to the width of a step of time.

Ends are in steps that grow by 2 %, from 5 s up to 35 days ahead: an estimate is no better than its run times, and all
draws are placed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GROWTH, _SCALE, _STEPS = 1.02, 250.0, 475
STEPS: Floats = np.asarray(_SCALE * (_GROWTH ** np.arange(_STEPS) - 1.0), dtype=np.float64)
"""When each step begins, in seconds from now."""
_LOG_GROWTH = float(np.log(_GROWTH))
_LEAST_WINDOW = 8
_HOLES = 12


class RunningUse(NamedTuple):
    """What a running job holds of each pool, and how long still: seconds by draw."""

    units: tuple[tuple[int, int], ...]
    left: Floats


class QueuedJob(NamedTuple):
    """``needs``: units by pool, of which the first decides on holes; ``run``: seconds by draw; ``ready``: seconds from
    now before which it cannot start."""

    needs: tuple[tuple[int, int], ...]
    run: Floats
    ready: float = 0.0


class StartProbe(NamedTuple):
    """A job that is not there, and would come behind the first ``after`` jobs of the queue."""

    job: QueuedJob
    after: int


class StartQuantiles(NamedTuple):
    """Seconds from now; inf: not within 35 days, or more is needed than there is."""

    p10: float
    p50: float
    p90: float


def start_times(
    totals: Sequence[int],
    running: Sequence[RunningUse],
    queue: Sequence[QueuedJob],
    draws: int,
    probes: Sequence[StartProbe] = (),
) -> Floats:
    """Seconds from now at which each job of the queue starts, then each probe, which takes nothing: (jobs, draws).

    totals  units of each pool; what runs holds at most so many
    """
    free = list(totals)
    pools = [_Pool(draws) for _ in totals]
    for use in running:
        ends = _steps_at(use.left)
        for pool, units in use.units:
            free[pool] -= units
            pools[pool].give(np.arange(draws), ends, units)
    for one, units in zip(pools, free, strict=True):
        one.give(np.arange(draws), np.zeros(draws, dtype=np.int64), max(0, units))
    holes = [_Holes(draws) for _ in totals]
    found = np.full((len(queue) + len(probes), draws), np.inf)
    behind: dict[int, list[int]] = {}
    for number, probe in enumerate(probes):
        behind.setdefault(min(probe.after, len(queue)), []).append(number)
    for at in range(len(queue) + 1):
        for number in behind.get(at, ()):
            _place(probes[number].job, pools, holes, found[len(queue) + number], keeps=False)
        if at < len(queue):
            _place(queue[at], pools, holes, found[at])
    return found


def _place(job: QueuedJob, pools: Sequence[_Pool], holes: Sequence[_Holes], found: Floats, keeps: bool = True) -> None:
    """Write the starts by draw; ``keeps``: take what it needs there."""
    if len(job.needs) == 1 and job.ready <= 0:
        ((pool, units),) = job.needs
        rows = holes[pool].take(units, job.run, found, keeps)
    else:
        rows = np.arange(len(found))
    if not len(rows):
        return
    takes = [pools[pool].find(rows, units) for pool, units in job.needs]
    start = takes[0].at if takes else np.zeros(len(rows))
    for take in takes[1:]:
        start = np.maximum(start, take.at)
    if job.ready > 0:
        start = np.maximum(start, job.ready)
    fits = np.isfinite(start)
    if not fits.all():
        rows, start = rows[fits], start[fits]
        takes = [take.of(fits) for take in takes]
        if not len(rows):
            return
    found[rows] = start
    if not keeps:
        return
    steps = _steps_at(start + job.run[rows])
    for (pool, units), take in zip(job.needs, takes, strict=True):
        pools[pool].take(rows, take)
        pools[pool].give(rows, steps, units)
        holes[pool].add(rows, take.begin, start, take.first)
        if (rest := units - take.first).any():
            holes[pool].add(rows, take.mean, start, rest)


def quantiles(starts: Floats) -> StartQuantiles:
    """Of the starts of one job by draw."""
    ordered = np.sort(starts)
    return StartQuantiles(*(float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in (0.1, 0.5, 0.9)))


class _Take(NamedTuple):
    """By row: when so many units are free (inf: never); how many of them are first, since when; the mean time since
    when the others are; the window of steps from which they come (flat indices), how many of each, and the step of
    the last."""

    at: Floats
    first: Floats
    begin: Floats
    mean: Floats
    window: Ints
    taken: Floats
    last: Ints

    def of(self, rows: NDArray[np.bool_]) -> _Take:
        at, first, begin, mean, window, taken, last = self
        return _Take(at[rows], first[rows], begin[rows], mean[rows], window[rows], taken[rows], last[rows])


# Steps beyond the last one stay empty, so that windows need no bound; they begin with the last one.
_WIDTH = 2 * _STEPS
_TIMES: Floats = STEPS[np.minimum(np.arange(_WIDTH), _STEPS - 1)]
_WINDOWS: Ints = np.arange(_WIDTH)


class _Pool:
    """Units that become free, by draw and step: whole numbers, as floats for the sake of products with times."""

    def __init__(self, draws: int) -> None:
        self._free: Floats = np.zeros(draws * _WIDTH)
        self._begin = np.arange(draws, dtype=np.int64) * _WIDTH
        self._lines: Ints = np.arange(draws)
        self._first: Ints = np.zeros(draws, dtype=np.int64)
        """By draw: nothing is free before this step."""

    def give(self, rows: Ints, steps: Ints, units: int) -> None:
        """Units are free from these steps on; from the last step on is never."""
        at = self._begin[rows] + steps
        self._free[at if steps.max(initial=0) < _STEPS else at[steps < _STEPS]] += units
        self._first[rows] = np.minimum(self._first[rows], steps)

    def find(self, rows: Ints, units: int) -> _Take:
        """The units that are free first."""
        first = self._first[rows]
        corner = (self._begin[rows] + first)[:, None]
        width = _LEAST_WINDOW
        while True:
            window = corner + _WINDOWS[:width]
            total = self._free[window].cumsum(axis=1)
            is_enough = total >= units
            if width >= _STEPS or is_enough[:, -1].all():
                break
            width = min(_STEPS, width * 4)
        lines = self._lines[: len(rows)]
        last = is_enough.argmax(axis=1)
        used = int(last.max()) + 1 if width < _STEPS else width  # of the window
        window, taken = window[:, :used], np.minimum(total[:, :used], units)
        taken[:, 1:] -= taken[:, :-1].copy()
        times = _TIMES[first[:, None] + _WINDOWS[:used]]
        at = times[lines, last]
        if width >= _STEPS:
            never = ~is_enough[:, -1]
            at[never], last[never] = np.inf, width
        earliest = (taken > 0).argmax(axis=1)
        count, begin = taken[lines, earliest], times[lines, earliest]
        mean = (np.einsum("ij,ij->i", taken, times) - count * begin) / np.maximum(units - count, 1)
        return _Take(at, count, begin, mean, window, taken, first + last)

    def take(self, rows: Ints, take: _Take) -> None:
        """Take them."""
        self._free[take.window] -= take.taken
        self._first[rows] = take.last


class _Holes:
    """Units that are free for a while, before a job that needs more: the latest few of each draw."""

    def __init__(self, draws: int) -> None:
        self._begin = np.full((draws, _HOLES), np.inf)
        self._end = np.zeros((draws, _HOLES))
        self._units = np.zeros((draws, _HOLES))
        self._next = np.zeros(draws, dtype=np.int64)
        self._rows: Ints = np.arange(draws)
        self._most = 0

    def add(self, rows: Ints, begin: Floats, end: Floats, units: Floats) -> None:
        worth = ((units > 0) & (begin < end - np.maximum(10.0, 0.02 * end))).nonzero()[0]
        if not len(worth):
            return
        rows, units = rows[worth], units[worth]
        at = self._next[rows]
        self._begin[rows, at], self._end[rows, at], self._units[rows, at] = begin[worth], end[worth], units
        self._next[rows] = (at + 1) % _HOLES
        self._most = max(self._most, int(units.max()))

    def take(self, units: int, run: Floats, found: Floats, keeps: bool) -> Ints:
        """Where the job fits into a hole, write its start; returns the draws in which it does not."""
        rows = self._rows
        if units > self._most:
            return rows
        fits = (self._begin <= self._end - run[:, None]) & (self._units >= units)
        inside = fits.any(axis=1)
        if not inside.any():
            return rows
        mine: Ints = np.flatnonzero(inside)
        hole = np.where(fits[mine], self._begin[mine], np.inf).argmin(axis=1)
        start = self._begin[mine, hole]
        found[mine] = start
        if keeps:
            end = self._end[mine, hole]
            self._units[mine, hole] -= units
            self.add(mine, start + run[mine], end, np.full(len(mine), float(units)))
        left: Ints = np.flatnonzero(~inside)
        return left


def _steps_at(seconds: Floats) -> Ints:
    """The nearest steps, but that of now only for now."""
    exact = np.rint(np.log1p(np.minimum(seconds, 1e9) / _SCALE) / _LOG_GROWTH)
    return np.asarray(np.minimum(np.maximum(exact, seconds > 0), _STEPS), dtype=np.int64)
