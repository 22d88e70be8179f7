"""EASY backfilling that takes the job first that is expected to be the shortest (Tsafrir, Etsion & Feitelson 2007)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.simulate.kernels.compiling import kernel, part
from omfs_daemon.simulate.kernels.run_history import NOT_LEARNED, RunHistory, learn_run, predicted
from omfs_daemon.simulate.kernels.running import (
    Ends,
    Expected,
    correct_expected,
    expect,
    expect_no_more,
    first_end,
    no_ends,
    nothing_expected,
    pop_end,
    push_end,
    reservation,
)


@kernel
def shortest_first_kernel(
    submit: Floats, cpus: Ints, run: Floats, estimate: Floats, capacity: int, history: RunHistory
) -> tuple[Floats, Floats]:
    """Start of each job, and when it was first promised to start as head of the queue (nan: it never was), in seconds.
    Every job needs at most ``capacity`` CPUs. Estimates that are learned are written to ``estimate``.

    The queue is served in order of submission until a job, the head, does not fit. The others are considered by their
    estimates. What one pass refused stays refused until a job ends or an expected end is put off (``easy_kernel``), so
    a pass in between considers only the jobs that have come since.
    """
    count = len(submit)
    start, promised, expected_end = np.full(count, np.nan), np.full(count, np.nan), np.empty(count)
    ends, expected = no_ends(count), nothing_expected(count)
    shortest = np.empty(count, np.int64)  # the jobs that wait, by estimate, then by submission
    free, waiting, arrived, head, shadow, spare = capacity, 0, 0, 0, np.inf, capacity
    while arrived < count or waiting > 0:
        now = min(first_end(ends), submit[arrived] if arrived < count else np.inf)
        afresh = False
        while first_end(ends) <= now:
            job = pop_end(ends)
            afresh = True
            free += cpus[job]
            expect_no_more(expected, expected_end[job], job)
            learn_run(history, job, run[job])
        since = arrived
        while arrived < count and submit[arrived] <= now:
            if history.rule != NOT_LEARNED:
                estimate[arrived] = predicted(history, arrived)
            _insert(shortest, waiting, estimate, arrived)
            waiting += 1
            arrived += 1
        if correct_expected(expected, expected_end, start, estimate, history.limit, now) or afresh:
            since = 0
        started = 0
        while head < arrived and (not np.isnan(start[head]) or cpus[head] <= free):
            if np.isnan(start[head]):
                _start(ends, expected, expected_end, start, run, estimate, head, now)
                free -= cpus[head]
                started += 1
                since = 0
            head += 1
        if head < arrived:
            if since <= head:
                since = 0
                shadow, spare = reservation(expected, cpus, cpus[head], free)
                if np.isnan(promised[head]):
                    promised[head] = shadow
            for place in range(waiting):
                job = shortest[place]
                if free <= 0:
                    break
                if job < since or job == head or cpus[job] > free or not np.isnan(start[job]):
                    continue
                if now + estimate[job] <= shadow or cpus[job] <= spare:
                    _start(ends, expected, expected_end, start, run, estimate, job, now)
                    free -= cpus[job]
                    started += 1
                    if expected_end[job] > shadow:
                        spare -= cpus[job]
        if started > 0:
            kept = 0
            for place in range(waiting):
                if np.isnan(start[shortest[place]]):
                    shortest[kept] = shortest[place]
                    kept += 1
            waiting = kept
    return start, promised


@part
def _insert(shortest: Ints, waiting: int, estimate: Floats, job: int) -> None:
    """Put the job, which came last, behind all that are not longer."""
    low, high = 0, waiting
    while low < high:
        middle = (low + high) >> 1
        if estimate[shortest[middle]] <= estimate[job]:
            low = middle + 1
        else:
            high = middle
    for place in range(waiting, low, -1):
        shortest[place] = shortest[place - 1]
    shortest[low] = job


@part
def _start(
    ends: Ends, expected: Expected, expected_end: Floats, start: Floats, run: Floats, estimate: Floats, job: int,
    now: float,
) -> None:  # fmt: skip
    start[job] = now
    expected_end[job] = now + estimate[job]
    push_end(ends, now + run[job], job)
    expect(expected, expected_end[job], job)
