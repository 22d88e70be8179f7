"""A slow, obvious book of reservations, and conservative backfilling by it: lists, everything worked out anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf, nan

from tests.support.reference import CORRECTIONS, Job

MORE = CORRECTIONS + [times * CORRECTIONS[-1] for times in range(2, 1000)]


def corrected(end: float, now: float) -> float:
    """When a running job is expected to end that should have ended at ``end``."""
    return end if end > now else next(end + more for more in MORE if end + more > now)


@dataclass
class Place:
    """What is reserved for a waiting job; ``number`` counts all places that were ever given."""

    start: float
    seconds: float
    cpus: int
    number: int

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class Book:
    """``held``: CPUs and expected end of what runs; ``places`` of waiting jobs, ``rank``: who gives way first."""

    capacity: int
    held: dict[int, tuple[int, float]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    rank: dict[int, int] = field(default_factory=dict)
    numbers: Iterable[int] = field(default_factory=count)

    def steps(self, now: float) -> list[tuple[float, int]]:
        """From which instants on, from now on, how many CPUs are free."""
        used = [(now, until, cpus) for cpus, until in self.held.values() if until > now]
        used += [(max(place.start, now), place.end, place.cpus) for place in self.places.values() if place.end > now]
        changes: dict[float, int] = {now: 0}
        for begin, end, cpus in used:
            changes[begin] = changes.get(begin, 0) - cpus
            changes[end] = changes.get(end, 0) + cpus
        free, steps = self.capacity, []
        for instant in sorted(changes):
            free += changes[instant]
            steps.append((instant, free))
        return steps

    def least_free(self, begin: float, end: float, now: float) -> int:
        """At any time from begin to before end, or at begin if they are one."""
        steps = self.steps(now)
        at_begin = [free for instant, free in steps if instant <= begin][-1]
        return min([at_begin, *(free for instant, free in steps if begin < instant < end)])

    def earliest(self, cpus: int, seconds: float, now: float) -> float:
        steps = self.steps(now)
        for at, (start, free) in enumerate(steps):
            if free >= cpus and all(f >= cpus for instant, f in steps[at:] if instant < start + seconds):
                return start
        raise AssertionError("a job that fits the machine finds no place")

    def reserve(self, job: int, cpus: int, seconds: float, now: float) -> float:
        start = self.earliest(cpus, seconds, now)
        self.places[job] = Place(start, seconds, cpus, next(iter(self.numbers)))
        return start

    def hold(self, job: int, cpus: int, until: float, now: float) -> None:
        """What the job holds is expected to be held until then; waiting jobs that clash with it give way."""
        _, before = self.held.get(job, (0, now))
        self.held[job] = (cpus, until)
        self._give_way(max(before, now), until, now)

    def _give_way(self, begin: float, end: float, now: float) -> None:
        """The last ones first, only as many as must; the others first get the earliest places that are left."""
        gone: list[tuple[int, Place]] = []
        for job in sorted(self.places, key=lambda job: -self.rank[job]):
            place = self.places[job]
            low, high = max(begin, place.start), min(end, place.end)
            if (low < high or begin <= place.start == place.end < end) and self.least_free(low, high, now) < 0:
                gone.append((job, self.places.pop(job)))
        for job, place in reversed(gone):
            self.reserve(job, place.cpus, place.seconds, now)

    def in_order(self) -> list[int]:
        return sorted(self.places, key=lambda job: (self.places[job].start, self.places[job].number))

    def compress(self, now: float) -> None:
        """Every waiting job, in order of its reserved start, moves to an earlier one if there is one."""
        for job in self.in_order():
            place = self.places.pop(job)
            if self.earliest(place.cpus, place.seconds, now) < place.start:
                self.reserve(job, place.cpus, place.seconds, now)
            else:
                self.places[job] = place

    def due(self, now: float) -> int | None:
        """The first waiting job whose start has come."""
        return next((job for job in self.in_order() if self.places[job].start <= now), None)


def conservative(jobs: Sequence[Job], capacity: int, compressing: bool) -> tuple[list[float], list[float]]:
    """Start and first promised start of each job; nan for those wider than the machine.

    At one instant: ends, corrections of overdue jobs, compression, arrivals, starts.
    """
    start, promised = [nan] * len(jobs), [nan] * len(jobs)
    book = Book(capacity, rank={job.index: job.index for job in jobs})
    coming, running = list(jobs), list[Job]()
    while coming or running or book.places:
        instants = [job.submit for job in coming] + [place.start for place in book.places.values()]
        instants += [start[job.index] + job.run for job in running]
        instants += [until for _, until in book.held.values()]
        now = min(instants)
        for job in [job for job in running if start[job.index] + job.run <= now]:
            running.remove(job)
            del book.held[job.index]
        for job in sorted(running, key=lambda job: job.index):
            cpus, until = book.held[job.index]
            if until <= now:
                book.hold(job.index, cpus, corrected(start[job.index] + job.estimate, now), now)
        if compressing:
            book.compress(now)
        while coming and coming[0].submit <= now:
            job = coming.pop(0)
            if job.cpus <= capacity:
                promised[job.index] = book.reserve(job.index, job.cpus, job.estimate, now)
        while (due := book.due(now)) is not None:
            job, place = jobs[due], book.places.pop(due)
            start[due] = now
            book.held[due] = (job.cpus, now + place.seconds)
            running.append(job)
    assert inf not in start
    return start, promised
