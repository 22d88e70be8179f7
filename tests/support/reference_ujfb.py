"""UJFB by a slow, obvious replay: who holds how many units, and who lent how many to whom, counted anew each time.

One unit of a job is as good as another, so units are counted, not numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan

from omfs_daemon.simulate.engine.outcome import Use
from omfs_daemon.simulate.engine.preemption_costs import SimulatedCosts
from tests.support.reference import Job
from tests.support.reference_reservations import Book, corrected

SegmentRow = tuple[int, float, float, int]


@dataclass
class Task:
    """A job that has come. ``own``: units that it is home to; ``lent``: to whom how many of them; ``left``: seconds
    that a preempted one is expected to need; ``planned``: its end as it was expected when the present segment began;
    ``ends_first``: it was to be preempted, but will be done before the signal comes."""

    job: Job
    state: str = "waiting"
    own: int = 0
    lent: dict[int, int] = field(default_factory=dict)
    lenders: list[int] = field(default_factory=list)
    since: float = nan
    computing: float = nan
    planned: float = nan
    ends: float = inf
    gone: float = nan
    done: float = 0.0
    left: float = nan
    start: float = nan
    finish: float = nan
    preemptions: int = 0
    ends_first: bool = False

    @property
    def idle(self) -> int:
        return self.own - sum(self.lent.values())


class Replay:
    """A replay; after ``run`` the tasks by index and the segments hold what happened."""

    def __init__(self, jobs: Sequence[Job], costs: SimulatedCosts, capacity: int, by_slowdown: bool) -> None:
        self.jobs, self.costs, self.capacity, self.by_slowdown = jobs, costs, capacity, by_slowdown
        self.book = Book(capacity)
        self.tasks: dict[int, Task] = {}
        self.swapped_out: list[int] = []
        self.urgent: list[int] = []
        self.segments: list[SegmentRow] = []
        self.now = nan

    def run(self) -> None:
        """At one instant: ends, preempted jobs that are gone, corrections, urgent jobs, swapped-out jobs that go on,
        compression, arrivals of regular jobs, starts."""
        coming = list(self.jobs)
        while coming or self.in_state("running") or self.in_state("preempting") or self.book.places:
            self.now = min([job.submit for job in coming] + self.instants())
            for index in self.in_state("running"):
                if self.tasks[index].ends <= self.now:
                    self.end(index)
            for index in self.in_state("preempting"):
                if self.tasks[index].gone <= self.now:
                    self.release(index)
            for index in self.in_state("running"):
                if self.until(index) <= self.now:
                    self.correct(index)
            new = [job for job in coming if job.submit <= self.now]
            coming = coming[len(new) :]
            for job in new:
                if job.urgent:
                    self.arrive(job)
            self.serve_urgent()
            for index in list(self.swapped_out):
                if not self.tasks[index].lent and self.tasks[index].gone <= self.now:
                    self.wake(index)
            self.book.compress(self.now)
            for job in new:
                if not job.urgent:
                    self.arrive(job)
            while (due := self.book.due(self.now)) is not None:
                self.start(due)
        assert not self.swapped_out and not self.urgent

    def instants(self) -> list[float]:
        running = self.in_state("running")
        return (
            [self.tasks[index].ends for index in running]
            + [self.until(index) for index in running]
            + [self.tasks[index].gone for index in self.in_state("preempting")]
            + [place.start for place in self.book.places.values()]
        )

    def in_state(self, state: str) -> list[int]:
        return [index for index, task in self.tasks.items() if task.state == state]

    def until(self, index: int) -> float:
        return self.book.held[index][1]

    def hold(self, index: int, until: float) -> None:
        self.book.hold(index, self.tasks[index].own, until, self.now)

    def free(self) -> int:
        return self.capacity - sum(task.own for task in self.tasks.values())

    # Ordinary life

    def arrive(self, job: Job) -> None:
        if job.cpus > self.capacity:
            return
        self.tasks[job.index] = Task(job)
        if job.urgent:
            self.urgent.append(job.index)
            self.book.rank[job.index] = job.index - 2 * len(self.jobs)
        else:
            self.book.rank[job.index] = job.index
            self.book.reserve(job.index, job.cpus, job.estimate, self.now)

    def start(self, index: int) -> None:
        task, place = self.tasks[index], self.book.places.pop(index)
        if index in self.urgent:
            self.urgent.remove(index)
        # The book counts nothing for a job of no length, so it takes no unit from those that start with it.
        task.own = task.job.cpus if place.seconds else 0
        assert self.free() >= 0, "a reserved start comes and the units are not free"
        if not task.preemptions:
            task.start = self.now
        resume = self.costs.resume[index] if task.preemptions else 0.0
        self.run_on(index, self.now, self.now + resume, self.now + place.seconds)

    def run_on(self, index: int, begin: float, computing: float, planned: float) -> None:
        task = self.tasks[index]
        task.state, task.since, task.computing, task.planned = "running", begin, computing, planned
        task.ends = computing + task.job.run - task.done
        self.hold(index, planned)
        for owner in reversed(task.lenders):
            self.keep(owner, planned)
        if task.ends <= self.now and planned <= self.now:
            self.end(index)

    def end(self, index: int) -> None:
        task = self.tasks[index]
        self.log_run(index, task.ends, Use.WORK)
        task.state, task.finish, task.own = "done", task.ends, 0
        for owner in task.lenders:
            del self.tasks[owner].lent[index]
        task.lenders.clear()
        del self.book.held[index]

    def log_run(self, index: int, end: float, use: Use) -> None:
        task = self.tasks[index]
        self.log_segment(index, task.since, min(task.computing, end), Use.RESUME)
        self.log_segment(index, min(task.computing, end), end, use)

    def log_segment(self, index: int, begin: float, end: float, use: Use) -> None:
        if begin < end:
            self.segments.append((index, begin, end, int(use)))

    def correct(self, index: int) -> None:
        task = self.tasks[index]
        until = self.put_off(task, self.now)
        self.hold(index, until)
        for owner in reversed(task.lenders):
            self.keep(owner, until)

    def keep(self, owner: int, borrowed_until: float) -> None:
        """A swapped-out job is expected to hold its units while they are lent, and then as long as it needs."""
        until = borrowed_until + self.costs.resume[owner] + self.tasks[owner].left
        if until > self.until(owner):
            self.hold(owner, until)

    # Urgent jobs

    def serve_urgent(self) -> None:
        queue = list(self.urgent)
        if self.by_slowdown:
            queue.sort(key=lambda index: -self.slowdown(self.jobs[index]))
        for index in queue:
            if self.make_room(index):
                self.urgent.remove(index)
            elif not self.by_slowdown:
                break
        for index in self.urgent:
            if index not in self.book.places:
                self.reserve_first(index, self.jobs[index].cpus, self.jobs[index].estimate)

    def slowdown(self, job: Job) -> float:
        expected = max(job.estimate, 1.0)
        return (self.now - job.submit + expected) / expected

    def make_room(self, index: int) -> bool:
        """Start an urgent job, as soon as its victims are gone; False if not enough may be preempted."""
        task, wanted = self.tasks[index], self.jobs[index].cpus
        idle = sum(self.tasks[other].idle for other in self.swapped_out)
        missing = wanted - self.free() - idle
        if not task.job.estimate:
            # For a job of no length it is enough that others could be preempted: none is.
            if missing <= sum(self.jobs[other].cpus for other in self.preemptible()):
                self.book.places.pop(index, None)
                task.start = self.now
                self.run_on(index, self.now, self.now, self.now)
            return task.state == "done"
        victims = self.victims(missing)
        if victims is None:
            return False
        self.book.places.pop(index, None)
        swapped_jobs = list(self.swapped_out)
        task.own = min(wanted, self.free())
        wanted -= task.own
        begin = self.preempt(victims)
        for other in swapped_jobs:
            if self.lend(other, index, wanted):
                begin = max(begin, self.tasks[other].gone)
                wanted -= self.tasks[other].lent[index]
        for other in victims:
            victim = self.tasks[other]
            if victim.state == "swapped":
                self.lend(other, index, wanted)
                wanted -= victim.lent[index]
            else:
                given = min(wanted, victim.own)
                task.own, victim.own, wanted = task.own + given, victim.own - given, wanted - given
                self.book.held[other] = (victim.own, self.until(other))
                if victim.state == "preempting":
                    self.hold(other, max(self.until(other), victim.gone))
        assert wanted == 0
        task.start = begin
        self.run_on(index, begin, begin, begin + task.job.estimate)
        return True

    def lend(self, owner: int, borrower: int, wanted: int) -> bool:
        given = min(wanted, self.tasks[owner].idle)
        if given:
            self.tasks[owner].lent[borrower] = given
            self.tasks[borrower].lenders.append(owner)
        return given > 0

    def preemptible(self) -> list[int]:
        running = self.in_state("running")
        return [index for index in running if self.costs.preemptible[index] and not self.tasks[index].ends_first]

    def victims(self, missing: int) -> list[int] | None:
        """Longest remaining first, ties: who started last, then the higher index; None if all are not enough."""
        if missing <= 0:
            return []
        order = self.preemptible()
        order.sort(key=lambda index: (self.turn(index), self.tasks[index].since, index), reverse=True)
        area = self.costs.area - sum(self.costs.size[index] for index in self.swapped_out)
        chosen: list[int] = []
        for index in order:
            if sum(self.jobs[other].cpus for other in chosen) < missing and self.costs.size[index] <= area:
                chosen.append(index)
                area -= self.costs.size[index]
        if sum(self.jobs[other].cpus for other in chosen) < missing:
            return None
        for index in reversed(list(chosen)):
            if sum(self.jobs[other].cpus for other in chosen if other != index) >= missing:
                chosen.remove(index)
        return chosen

    def turn(self, index: int) -> float:
        """Who has the greatest is preempted first."""
        return self.until(index)

    def put_off(self, task: Task, now: float) -> float:
        """When a running job is expected to end that may have outlived what was expected."""
        return corrected(task.planned, now)

    def preempt(self, victims: list[int]) -> float:
        """Preempt jobs together; returns when the last of them is gone."""
        signal = self.now + (self.costs.latency if victims else 0.0)
        preempted = [index for index in victims if self.tasks[index].ends > signal]
        swapped = [index for index in preempted if self.costs.pinned[index]]
        others = [index for index in preempted if not self.costs.pinned[index]]
        takes = max(
            max((self.costs.preemption[index] for index in preempted), default=0.0),
            sum(self.costs.queueing[index] for index in swapped),
            sum(self.costs.queueing[index] for index in others),
        )
        for index in preempted:
            self.preempt_one(index, signal, signal + takes)
        for index in victims:
            self.tasks[index].ends_first = index not in preempted
        ends = [self.tasks[index].ends for index in victims if index not in preempted]
        return float(max([self.now, *ends, *([signal + takes] if preempted else [])]))

    def preempt_one(self, index: int, signal: float, gone: float) -> None:
        task, keeps = self.tasks[index], self.costs.keeps[index]
        self.log_run(index, signal, Use.WORK if keeps else Use.LOST)
        self.log_segment(index, signal, gone, Use.PREEMPTION)
        task.preemptions, task.gone = task.preemptions + 1, gone
        # Nobody is expected to need less than nothing: who is late at the signal counts as corrected then.
        expected = self.until(index) if self.until(index) > signal else self.put_off(task, signal)
        task.done += max(0.0, signal - task.computing) if keeps else -task.done
        task.left = expected - max(signal, task.computing) if keeps else task.job.estimate
        if self.costs.pinned[index]:
            task.state = "swapped"
            self.swapped_out.append(index)
        else:
            task.state = "preempting"

    def release(self, index: int) -> None:
        """A killed or checkpointed job is gone and waits at the head of the regular queue."""
        task = self.tasks[index]
        task.state, task.own = "waiting", 0
        del self.book.held[index]
        self.book.rank[index] = index - len(self.jobs)
        self.reserve_first(index, task.job.cpus, self.costs.resume[index] + task.left)

    def reserve_first(self, index: int, cpus: int, seconds: float) -> None:
        """As if those of higher rank were not there; they get what is left, in order of rank."""
        rank = self.book.rank
        behind = [
            other for other in sorted(self.book.places, key=lambda other: rank[other]) if rank[other] > rank[index]
        ]
        places = {other: self.book.places.pop(other) for other in behind}
        self.book.reserve(index, cpus, seconds, self.now)
        for other, place in places.items():
            self.book.reserve(other, place.cpus, place.seconds, self.now)

    def wake(self, index: int) -> None:
        """A swapped-out job goes on on its own units."""
        self.swapped_out.remove(index)
        computing = self.now + self.costs.resume[index]
        self.run_on(index, self.now, computing, computing + self.tasks[index].left)
