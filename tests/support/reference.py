"""Slow, obvious replays to hold the fast ones against: plain Python, everything worked out anew at every instant.

A policy is a function of what a scheduler sees at one pass (``SchedulerView``); it returns the jobs to start now, in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan

from omfs_daemon.simulate.engine.conventions import Conventions, prepared
from omfs_daemon.simulate.workload.workload import Workload

CORRECTIONS = [60, 5 * 60, 15 * 60, 30 * 60] + [hours * 3600 for hours in (1, 2, 5, 10, 20, 50, 100)]


@dataclass(frozen=True)
class Job:
    index: int
    submit: float
    cpus: int
    run: float
    estimate: float
    urgent: bool
    account: int


@dataclass
class SchedulerView:
    """What is known at ``now`` at the beginning of a pass; ``waiting`` in order of submission; ``start`` by index."""

    now: float
    capacity: int
    waiting: list[Job]
    running: list[Job]
    start: dict[int, float]

    @property
    def free(self) -> int:
        return self.capacity - sum(job.cpus for job in self.running)

    def expected_end(self, job: Job) -> float:
        """By estimate; a job that has outlived it is believed to last until the next correction."""
        end = self.start[job.index] + job.estimate
        if end > self.now:
            return end
        steps = CORRECTIONS + [times * CORRECTIONS[-1] for times in range(2, 1000)]
        return next(end + step for step in steps if end + step > self.now)


Decide = Callable[[SchedulerView], Sequence[Job]]


def jobs_of(workload: Workload, conventions: Conventions) -> list[Job]:
    seen = prepared(workload, conventions)
    columns = (*seen, workload.urgent, workload.account)
    return [Job(index, *values) for index, values in enumerate(zip(*(c.tolist() for c in columns), strict=True))]


def replay(jobs: Sequence[Job], capacity: int, decide: Decide) -> list[float]:
    """Start of each job by its index; nan for one that is wider than the machine.

    At one instant: ends, then arrivals, then one pass; if a job starts that lasts no time, the instant comes again.
    """
    coming = [job for job in jobs if job.cpus <= capacity]
    start: dict[int, float] = {}
    waiting: list[Job] = []
    running: list[Job] = []
    while coming or running:
        instants = [job.submit for job in coming] + [start[job.index] + job.run for job in running]
        now = min(instants)
        running = [job for job in running if start[job.index] + job.run > now]
        waiting += [job for job in coming if job.submit <= now]
        coming = [job for job in coming if job.submit > now]
        started = decide(SchedulerView(now, capacity, waiting, running, start))
        for job in started:
            start[job.index] = now
        waiting = [job for job in waiting if job not in started]
        running = running + list(started)
        assert sum(job.cpus for job in running) <= capacity, "a CPU is used twice"
    assert not waiting, "jobs are left waiting on an idle machine"
    return [start.get(job.index, nan) for job in jobs]


def fcfs(view: SchedulerView) -> list[Job]:
    return _from_the_front(view.waiting, view.free)


def ujf(view: SchedulerView) -> list[Job]:
    """The urgent queue, then the regular one; a job that does not fit blocks everything behind it."""
    return _from_the_front(sorted(view.waiting, key=lambda job: not job.urgent), view.free)


def _from_the_front(queue: Sequence[Job], free: int) -> list[Job]:
    started: list[Job] = []
    for job in queue:
        if job.cpus > free:
            break
        started.append(job)
        free -= job.cpus
    return started


def easy(view: SchedulerView) -> list[Job]:
    return easy_with_caps({}, {})(view)


def easy_with_caps(caps: dict[int, int], promised: dict[int, float]) -> Decide:
    """EASY where the jobs of an account together hold at most its cap; an account without one holds what it wants.

    What a head is first promised is written to ``promised``, by index.
    """

    def decide(view: SchedulerView) -> list[Job]:
        ends = {job: view.expected_end(job) for job in view.running}
        started: list[Job] = []
        head: Job | None = None
        for job in view.waiting:
            active = view.running + started
            held = sum(other.cpus for other in active if other.account == job.account)
            if held + job.cpus > caps.get(job.account, inf):
                continue
            if job.cpus > view.capacity - sum(other.cpus for other in active):
                if head is None:
                    head = job
                    promised.setdefault(job.index, shadow_time(view, ends, head))
                continue
            with_it = {**ends, job: view.now + job.estimate}
            if head is None or shadow_time(view, with_it, head) <= shadow_time(view, ends, head):
                started.append(job)
                ends = with_it
        return started

    return decide


def shadow_time(view: SchedulerView, ends: dict[Job, float], head: Job) -> float:
    """When the head could start if all jobs that hold CPUs ended as expected."""
    instants = sorted(set(ends.values()))
    return next(
        instant
        for instant in instants
        if sum(job.cpus for job, end in ends.items() if end > instant) + head.cpus <= view.capacity
    )
