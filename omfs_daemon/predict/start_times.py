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
Bools = NDArray[np.bool_]

_GROWTH, _SCALE, _STEPS = 1.02, 250.0, 475
STEPS: Floats = np.asarray(_SCALE * (_GROWTH ** np.arange(_STEPS) - 1.0), dtype=np.float64)
"""When each step begins, in seconds from now."""
_BOUNDS: Floats = np.asarray(_SCALE * (_GROWTH ** (np.arange(_STEPS) + 0.5) - 1.0), dtype=np.float64)
_BOUNDS[0] = np.nextafter(0.0, 1.0)
"""From when on a time is nearer to the next step than to this one."""
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
    ends = _steps_at(np.array([use.left for use in running], dtype=np.float64).reshape(len(running), draws))
    held: list[list[tuple[int, int]]] = [[] for _ in totals]
    for at, use in enumerate(running):
        for pool, units in use.units:
            held[pool].append((at, units))
            free[pool] -= units
    for one, of_pool in zip(pools, held, strict=True):
        if of_pool:
            rows = [at for at, _ in of_pool]
            one.give_all(ends[rows], np.array([units for _, units in of_pool], dtype=np.float64))
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
    if start.max() == np.inf:
        fits = np.isfinite(start)
        rows, start = rows[fits], start[fits]
        takes = [take.of(fits) for take in takes]
        if not len(rows):
            return
    is_whole = len(rows) == len(found)
    if is_whole:
        found[:] = start
    else:
        found[rows] = start
    if not keeps:
        return
    steps = _steps_at(start + (job.run if is_whole else job.run[rows]))
    worth = _worth_before(start)
    for (pool, units), take in zip(job.needs, takes, strict=True):
        pools[pool].take(rows, take)
        pools[pool].give(rows, steps, units)
        holes[pool].add(rows, take.begin, start, take.first, worth)
        if (rest := units - take.first).any():
            holes[pool].add(rows, take.mean(units), start, rest, worth)


def quantiles(starts: Floats) -> StartQuantiles:
    """Of the starts of one job by draw."""
    ordered = np.sort(starts)
    return StartQuantiles(*(float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in (0.1, 0.5, 0.9)))


class _Take(NamedTuple):
    """By row: when so many units are free (inf: never); how many of them are first, since when; the window of steps
    from which they come: flat indices, when these are, how many are free and taken; and the step of the last."""

    at: Floats
    first: Floats
    begin: Floats
    window: Ints
    times: Floats
    free: Floats
    taken: Floats
    last: Ints

    def of(self, rows: Bools) -> _Take:
        return _Take._make(column[..., rows] for column in self)

    def mean(self, units: int) -> Floats:
        """The mean time since when those are free that are not first."""
        others = np.einsum("ij,ij->j", self.taken, self.times) - self.first * self.begin
        return np.asarray(others / np.maximum(units - self.first, 1), dtype=np.float64)


# Steps beyond the last one stay empty, so that windows need no bound; they begin with the last one.
_WIDTH = 2 * _STEPS
_TIMES: Floats = STEPS[np.minimum(np.arange(_WIDTH), _STEPS - 1)]
_WINDOWS: Ints = np.arange(_WIDTH)


class _Pool:
    """Units that become free, by step and draw: whole numbers, as floats for the sake of products with times."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._free: Floats = np.zeros(_WIDTH * draws)
        self._window: Ints = (_WINDOWS * draws)[:, None]
        self._lines: Ints = np.arange(draws)
        self._first: Ints = np.zeros(draws, dtype=np.int64)
        """By draw: nothing is free before this step."""

    def give(self, rows: Ints, steps: Ints, units: int) -> None:
        """Units are free from these steps on; from the last step on is never."""
        at = steps * self._draws + rows
        self._free[at if steps.max(initial=0) < _STEPS else at[steps < _STEPS]] += units
        if len(rows) == self._draws:
            np.minimum(self._first, steps, out=self._first)
        else:
            self._first[rows] = np.minimum(self._first[rows], steps)

    def give_all(self, steps: Ints, units: Floats) -> None:
        """The same at once for many jobs: (jobs, draws). Sums of whole numbers are the same in any order."""
        at, is_given = steps * self._draws + self._lines, steps < _STEPS
        given = np.broadcast_to(units[:, None], steps.shape)[is_given]
        self._free += np.bincount(at[is_given], weights=given, minlength=len(self._free))
        self._first = np.minimum(self._first, steps.min(axis=0))

    def find(self, rows: Ints, units: int) -> _Take:
        """The units that are free first."""
        first = self._first.copy() if len(rows) == self._draws else self._first[rows]
        corner = first * self._draws + rows
        width = _LEAST_WINDOW
        while True:
            window = corner + self._window[:width]
            free = self._free.take(window)
            total = free.cumsum(axis=0)
            is_enough = total >= units
            if width >= _STEPS or is_enough[-1].all():
                break
            width = min(_STEPS, width * 4)
        last = is_enough.argmax(axis=0)
        used = int(last.max()) + 1 if width < _STEPS else width  # of the window
        window, free, taken = window[:used], free[:used], np.minimum(total[:used], units)
        taken[1:] -= taken[:-1].copy()
        step = first + last
        at = _TIMES.take(step)
        if width >= _STEPS:
            at[~is_enough[-1]] = np.inf
        earliest = (taken > 0).argmax(axis=0)
        count = taken.take(earliest * len(rows) + self._lines[: len(rows)])
        times = _TIMES.take(first + _WINDOWS[:used, None])
        return _Take(at, count, _TIMES.take(first + earliest), window, times, free, taken, step)

    def take(self, rows: Ints, take: _Take) -> None:
        """Take them; nothing else has changed since they were found."""
        self._free[take.window] = take.free - take.taken
        self._first[rows] = take.last


def _worth_before(end: Floats) -> Floats:
    """Before when a hole has to begin, to be worth anything."""
    return np.asarray(end - np.maximum(10.0, 0.02 * end), dtype=np.float64)


class _Holes:
    """Units that are free for a while, before a job that needs more: the latest few of each draw."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._begin = np.full((_HOLES, draws), np.inf)
        self._end = np.zeros((_HOLES, draws))
        self._units = np.zeros((_HOLES, draws))
        self._next = np.zeros(draws, dtype=np.int64)
        self._rows: Ints = np.arange(draws)
        self._most = 0

    def add(self, rows: Ints, begin: Floats, end: Floats, units: Floats, before: Floats) -> None:
        """``before``: as ``_worth_before`` says of their ends."""
        is_worth: Bools = (units > 0) & (begin < before)
        worth = is_worth.nonzero()[0]
        if not len(worth):
            return
        rows, units = rows[worth], units[worth]
        at = self._next[rows]
        flat = at * self._draws + rows
        self._begin.put(flat, begin[worth])
        self._end.put(flat, end[worth])
        self._units.put(flat, units)
        self._next[rows] = (at + 1) % _HOLES
        self._most = max(self._most, int(units.max()))

    def take(self, units: int, run: Floats, found: Floats, keeps: bool) -> Ints:
        """Where the job fits into a hole, write its start; returns the draws in which it does not."""
        rows = self._rows
        if units > self._most:
            return rows
        fits = (self._begin <= self._end - run) & (self._units >= units)
        inside: Bools = np.asarray(fits.any(axis=0))
        mine: Ints = inside.nonzero()[0]
        if not len(mine):
            return rows
        hole = np.where(fits[:, mine], self._begin[:, mine], np.inf).argmin(axis=0)
        start = self._begin[hole, mine]
        found[mine] = start
        if keeps:
            end = self._end[hole, mine]
            self._units[hole, mine] -= units
            self.add(mine, start + run[mine], end, np.full(len(mine), float(units)), _worth_before(end))
        left: Ints = (~inside).nonzero()[0]
        return left


def _steps_at(seconds: Floats) -> Ints:
    """The nearest steps, but that of now only for now."""
    return np.asarray(np.searchsorted(_BOUNDS, seconds, side="right"), dtype=np.int64)
