"""A small log whose optimum is sought: jobs, the places where each can run, and what a stop costs."""

from __future__ import annotations

from dataclasses import dataclass

from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.checkpoint_laws import checkpoint_seconds


@dataclass(frozen=True, slots=True)
class SmallJob:
    """One job of a small log; times in seconds.

    run       exactly what it runs; at least 1
    size      of the smallest place that holds it, in CPUs
    realtime  it is never stopped, and the mean slowdown of these jobs is bounded
    overhead  seconds that a checkpoint adds to either part of a stopped job (Eq. 42-44)
    """

    job_id: int
    submit: int
    run: int
    size: int
    realtime: bool
    overhead: int


@dataclass(frozen=True, slots=True)
class SmallLog:
    """name: of the log, empty if its file holds one; cpus: of the machine; unit: of its smallest place."""

    name: str
    cpus: int
    unit: int
    jobs: tuple[SmallJob, ...]

    def places(self, job: SmallJob) -> range:
        """The first CPU of each place of the job's size: they are aligned, so block i begins at i times the size."""
        return range(0, self.cpus - job.size + 1, job.size)

    @property
    def batch(self) -> tuple[SmallJob, ...]:
        """Those whose mean slowdown is minimized."""
        return tuple(job for job in self.jobs if not job.realtime)

    @property
    def realtime(self) -> tuple[SmallJob, ...]:
        """Those whose mean slowdown is bounded."""
        return tuple(job for job in self.jobs if job.realtime)


@dataclass(frozen=True, slots=True)
class Part:
    """A time that a job holds a place; all seconds.

    number    1, or 2 after a stop
    place     its first CPU; both parts of a job are on one place (Eq. 52)
    overhead  of ``end - start``, what a checkpoint takes: at the end of part 1, at the begin of part 2
    """

    job: SmallJob
    number: int
    place: int
    start: int
    end: int
    overhead: int


Schedule = tuple[Part, ...]


def schedule_slowdowns(schedule: Schedule) -> dict[int, float]:
    """Slowdown by job number: from submission to the end over run time, without a bound (Def. 1)."""
    ends: dict[int, tuple[SmallJob, int]] = {}
    for part in schedule:
        ends[part.job.job_id] = (part.job, max(part.end, ends.get(part.job.job_id, (part.job, 0))[1]))
    return {job_id: (end - job.submit) / job.run for job_id, (job, end) in ends.items()}


def mean_slowdown(schedule: Schedule, realtime: bool) -> float | None:
    """Of the real-time jobs, or of the others (Eq. 36 and 37); None if there are none."""
    slowdowns = schedule_slowdowns(schedule)
    of = {part.job.job_id for part in schedule if part.job.realtime == realtime}
    return sum(slowdowns[job_id] for job_id in of) / len(of) if of else None


def checkpoint_overhead(cpus: int, memory: float) -> int:
    """Seconds to write or to read so many bytes of a job: 4 GB/s for each 128 of its CPUs, which share one I/O node,
    and at most 216 GB/s of the file system (Eq. 34)."""
    return int(checkpoint_seconds(cpus, memory / cpus))


def aligned_unit(layout: str, cpus: int) -> int:
    """Of a layout like ``aligned:512``; ConfigError if it is none such, or does not divide the machine."""
    kind, _, text = layout.partition(":")
    if kind != "aligned" or not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ConfigError(f"--layout {layout!r} is not allowed for an optimum: aligned:UNIT, UNIT a number of CPUs")
    if cpus % int(text):
        raise ConfigError(f"--layout {layout}: {cpus:,} CPUs are no multiple of {int(text):,}")
    return int(text)


def place_size(cpus: int, unit: int, machine: int) -> int | None:
    """Of the smallest place, UNIT times a power of two, that holds so many CPUs; None if none of the machine does."""
    size = unit
    while size < cpus:
        size *= 2
    return size if size <= machine else None
