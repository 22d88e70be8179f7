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
_LINES: Ints = np.arange(1000)
"""The numbers of so many draws, which are the most."""
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
    if draws > len(_LINES):
        raise ValueError(f"at most {len(_LINES)} draws")
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
    rows = _LINES[: len(found)]
    is_plain = len(job.needs) == 1 and job.ready <= 0
    if is_plain:
        ((pool, units),) = job.needs
        rows = holes[pool].take(units, job.run, found, keeps)
        if not len(rows):
            return
    start, takes = _earliest(job, pools, rows)
    if not all(take.is_sure for take in takes):
        is_ever = np.isfinite(start)
        rows = rows[is_ever]
        if not len(rows):
            return
        start, takes = _earliest(job, pools, rows)
    is_whole = len(rows) == len(found)
    found[... if is_whole else rows] = start
    if not keeps:
        return
    steps = _steps_at(start + (job.run if is_whole else job.run[rows]))
    for (pool, units), take in zip(job.needs, takes, strict=True):
        pools[pool].take(rows, take, units)
        pools[pool].give(rows, steps, units)
        if not is_plain:  # what is free at once leaves no hole
            holes[pool].add_near(rows, take, start, units)
        if take.gathered is not None:
            holes[pool].add_gathered(rows[take.far], take.gathered, start[take.far], units)


def _earliest(job: QueuedJob, pools: Sequence[_Pool], rows: Ints) -> tuple[Floats, list[_Take]]:
    """When it can start in these draws (inf: never), and what it takes."""
    takes = [pools[pool].find(rows, units) for pool, units in job.needs]
    start = takes[0].at if takes else np.zeros(len(rows))
    for take in takes[1:]:
        start = np.maximum(start, take.at)
    return (start if job.ready <= 0 else np.maximum(start, job.ready)), takes


def quantiles(starts: Floats) -> StartQuantiles:
    """Of the starts of one job by draw."""
    ordered = np.sort(starts)
    return StartQuantiles(*(float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in (0.1, 0.5, 0.9)))


class _Gathered(NamedTuple):
    """Units from several steps, by row: when so many are free (inf: never); how many of them are first, since when; the
    window of steps from which they come: the first one, flat indices, how many are free and taken; and the step of the
    last."""

    at: Floats
    first: Floats
    begin: Floats
    window_from: Ints
    window: Ints
    free: Floats
    taken: Floats
    last: Ints
    is_sure: bool
    """Whether all are free at some time."""

    def mean(self, others: Floats) -> Floats:
        """The mean time since when those are free that are not first; how many these are."""
        times = _FINITE_TIMES.take(self.window_from + _WINDOWS[: len(self.window), None])
        later = np.einsum("ij,ij->j", self.taken, times) - self.first * self.begin
        return np.asarray(later / np.maximum(others, 1), dtype=np.float64)


class _Take(NamedTuple):
    """By row: when so many units are free; where the first free ones are (flat indices), and how many they are.
    ``far``: the rows in which these are too few, and what they take; None: there is no such row."""

    at: Floats
    corner: Ints
    now: Floats
    far: Ints
    gathered: _Gathered | None

    @property
    def is_sure(self) -> bool:
        return self.gathered is None or self.gathered.is_sure


# What is free from the last step on never is. The steps beyond it stay empty, so that windows need no bound.
_WIDTH = 2 * _STEPS + 1
_TIMES: Floats = np.full(_WIDTH, np.inf)
_TIMES[:_STEPS] = STEPS
_FINITE_TIMES: Floats = np.where(np.isfinite(_TIMES), _TIMES, 0.0)
"""Where nothing is taken they are multiplied by 0."""
_WINDOWS: Ints = np.arange(_WIDTH)


class _Pool:
    """Units that become free, by step and draw: whole numbers, as floats for the sake of products with times."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._free: Floats = np.zeros(_WIDTH * draws)
        self._window: Ints = (_WINDOWS * draws)[:, None]
        self._first: Ints = np.zeros(draws, dtype=np.int64)
        """By draw: nothing is free before this step."""

    def give(self, rows: Ints, steps: Ints, units: int) -> None:
        """Units are free from these steps on, none of which is before the first."""
        self._free[steps * self._draws + rows] += units

    def give_all(self, steps: Ints, units: Floats) -> None:
        """The same at once for many jobs: (jobs, draws). Sums of whole numbers are the same in any order."""
        given = np.broadcast_to(units[:, None], steps.shape).ravel()
        at = (steps * self._draws + _LINES[: self._draws]).ravel()
        self._free += np.bincount(at, weights=given, minlength=len(self._free))

    def find(self, rows: Ints, units: int) -> _Take:
        """The units that are free first. Mostly they are free all at once: a long queue has more jobs than steps."""
        first = self._first if len(rows) == self._draws else self._first[rows]
        corner = first * self._draws + rows
        now, at = self._free.take(corner), _TIMES.take(first)
        far = (now < units).nonzero()[0]
        if not len(far):
            return _Take(at, corner, now, far, None)
        gathered = self._gathered(first[far], corner[far], units)
        at[far] = gathered.at
        return _Take(at, corner, now, far, gathered)

    def _gathered(self, first: Ints, corner: Ints, units: int) -> _Gathered:
        width = _LEAST_WINDOW
        while True:
            window = corner + self._window[:width]
            free = self._free.take(window)
            total = free.cumsum(axis=0)
            is_enough = total >= units
            is_found = is_enough[-1]
            if width > _STEPS or np.count_nonzero(is_found) == len(first):
                break
            width = min(_STEPS + 1, width * 4)
        taken = np.minimum(total, units)
        taken[1:] -= taken[:-1].copy()
        last = first + is_enough.argmax(axis=0)
        at = _TIMES.take(last)
        if width > _STEPS:
            at[~is_found] = np.inf
        is_sure = int(last.max()) < _STEPS and width <= _STEPS
        earliest = (taken > 0).argmax(axis=0)
        count = taken.take(earliest * len(first) + _LINES[: len(first)])
        return _Gathered(at, count, _TIMES.take(first + earliest), first, window, free, taken, last, is_sure)

    def take(self, rows: Ints, take: _Take, units: int) -> None:
        """Take them; nothing else has changed since they were found."""
        self._free[take.corner] = take.now - units
        if take.gathered is not None:
            self._free[take.gathered.window] = take.gathered.free - take.gathered.taken
            self._first[rows[take.far]] = take.gathered.last


def _worth_before(end: Floats) -> Floats:
    """Before when a hole has to begin, to be worth anything."""
    found: Floats = end - np.maximum(10.0, 0.02 * end)
    return found


class _Holes:
    """Units that are free for a while, before a job that needs more: the latest few of each draw."""

    def __init__(self, draws: int) -> None:
        self._draws = draws
        self._begin = np.full((_HOLES, draws), np.inf)
        self._end = np.zeros((_HOLES, draws))
        self._length = np.full((_HOLES, draws), -np.inf)
        self._units = np.zeros((_HOLES, draws))
        self._next = np.zeros(draws, dtype=np.int64)
        self._rows: Ints = _LINES[:draws]
        self._most = 0

    def add_near(self, rows: Ints, take: _Take, start: Floats, units: int) -> None:
        """Units that are free at once, but before the job starts."""
        is_near = take.now >= units
        self._add(rows, take.at, start, np.where(is_near, float(units), 0.0), _worth_before(start))

    def add_gathered(self, rows: Ints, gathered: _Gathered, start: Floats, units: int) -> None:
        """Those of the units that are free first, and the others, of their mean length."""
        worth = _worth_before(start)
        self._add(rows, gathered.begin, start, gathered.first, worth)
        others = units - gathered.first
        self._add(rows, gathered.mean(others), start, others, worth)

    def _add(self, rows: Ints, begin: Floats, end: Floats, units: Floats, before: Floats) -> None:
        """``before``: as ``_worth_before`` says of their ends."""
        is_worth: Bools = (units > 0) & (begin < before)
        worth = is_worth.nonzero()[0]
        if not len(worth):
            return
        rows, units, begin, end = rows[worth], units[worth], begin[worth], end[worth]
        at = self._next[rows]
        flat = at * self._draws + rows
        self._begin.put(flat, begin)
        self._end.put(flat, end)
        self._length.put(flat, end - begin)
        self._units.put(flat, units)
        self._next[rows] = (at + 1) % _HOLES
        self._most = max(self._most, int(units.max()))

    def take(self, units: int, run: Floats, found: Floats, keeps: bool) -> Ints:
        """Where the job fits into a hole, write its start; returns the draws in which it does not."""
        rows = self._rows
        if units > self._most:
            return rows
        fits = (self._length >= run) & (self._units >= units)
        if not np.count_nonzero(fits):
            return rows
        inside: Bools = np.asarray(fits.any(axis=0))
        mine: Ints = inside.nonzero()[0]
        hole = np.where(fits[:, mine], self._begin[:, mine], np.inf).argmin(axis=0)
        start = self._begin[hole, mine]
        found[mine] = start
        if keeps:
            end = self._end[hole, mine]
            self._units[hole, mine] -= units
            self._add(mine, start + run[mine], end, np.full(len(mine), float(units)), _worth_before(end))
        left: Ints = (~inside).nonzero()[0]
        return left


def _steps_at(seconds: Floats) -> Ints:
    """The nearest steps, but that of now only for now."""
    found: Ints = _BOUNDS.searchsorted(seconds, side="right")
    return found
