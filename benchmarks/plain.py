"""FCFS and EASY in plain Python, as one would write them with a heap and a sorted list: rivals of the compiled ones.

They give the same schedules; the benchmark refuses to compare them otherwise. Times are in seconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from math import inf, nan

from omfs_daemon.simulate.engine.conventions import Jobs

CORRECTIONS = (60, 300, 900, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000)


def fcfs(jobs: Jobs, capacity: int) -> list[float]:
    """Start of each job; every job fits into the machine."""
    start: list[float] = []
    ends: list[tuple[float, int]] = []
    free, now = capacity, -inf
    for submit, cpus, run in zip(jobs.submit.tolist(), jobs.cpus.tolist(), jobs.run.tolist(), strict=True):
        now = max(now, submit)
        while ends and (free < cpus or ends[0][0] <= now):
            end, width = heappop(ends)
            now = max(now, end)
            free += width
        start.append(now)
        free -= cpus
        heappush(ends, (now + run, cpus))
    return start


def easy(jobs: Jobs, capacity: int) -> list[float]:
    """Start of each job; every job fits into the machine."""
    submit, cpus, run, estimate = (column.tolist() for column in jobs)
    count, arrived, free = len(submit), 0, capacity
    start, expected_end = [nan] * count, [nan] * count
    ends: list[tuple[float, int]] = []
    expected: list[tuple[float, int]] = []
    waiting: list[int] = []

    def begin(job: int, now: float) -> None:
        start[job] = now
        expected_end[job] = now + estimate[job]
        heappush(ends, (now + run[job], job))
        insort(expected, (expected_end[job], job))

    while arrived < count or waiting:
        now = min(ends[0][0] if ends else inf, submit[arrived] if arrived < count else inf)
        while ends and ends[0][0] <= now:
            _, job = heappop(ends)
            del expected[bisect_left(expected, (expected_end[job], job))]
            free += cpus[job]
        while arrived < count and submit[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        while expected and expected[0][0] <= now:
            _, job = expected.pop(0)
            expected_end[job] = _later(start[job] + estimate[job], now)
            insort(expected, (expected_end[job], job))
        started = 0
        while started < len(waiting) and cpus[waiting[started]] <= free:
            begin(waiting[started], now)
            free -= cpus[waiting[started]]
            started += 1
        del waiting[:started]
        if waiting and free:
            shadow, spare = _reservation(expected, cpus, cpus[waiting[0]], free)
            left = waiting[:1]
            for place, job in enumerate(waiting[1:], start=1):
                ends_in_time = now + estimate[job] <= shadow
                if cpus[job] > free or not (ends_in_time or cpus[job] <= spare):
                    left.append(job)
                    continue
                begin(job, now)
                free -= cpus[job]
                if not ends_in_time:
                    spare -= cpus[job]
                if not free:
                    left += waiting[place + 1 :]
                    break
            waiting = left
    return start


def _later(end: float, now: float) -> float:
    for more in CORRECTIONS:
        if end + more > now:
            return end + more
    return end + (1 + (now - end) // CORRECTIONS[-1]) * CORRECTIONS[-1]


def _reservation(expected: list[tuple[float, int]], cpus: list[int], needed: int, free: int) -> tuple[float, int]:
    shadow = -inf
    for end, job in expected:
        if free >= needed and end > shadow:
            break
        shadow = end
        free += cpus[job]
    return shadow, free - needed
