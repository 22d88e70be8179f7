"""The jobs of a snapshot, sorted by what they do, with what a plan asks of each and every one of them in arrays.

A site may have a hundred thousand jobs, of which few change from one snapshot to the next: so each crowd is made from
the one before, and only jobs that are not the very same objects are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.arrays.node_arrays import Machine
from omfs_daemon.policy.rules.queue_order import has_band
from omfs_daemon.policy.rules.queue_order import in_turn
from omfs_daemon.policy.rules.queue_order import own_priorities
from omfs_daemon.cluster.holds import ready_from

Floats = NDArray[np.float64]
Jobs = NDArray[Any]


class Patterns:
    """Numbers for jobs that are alike in request, account and all that rules go by; ``first``: one job of each."""

    def __init__(self) -> None:
        self.first: list[Job] = []
        self._known: dict[tuple[object, ...], int] = {}

    def of(self, jobs: Iterable[Job]) -> Ints:
        known, pending, none, user = self._known, JobState.PENDING, Hold.NONE, Hold.USER
        numbers = []
        for job in jobs:
            # Parsers share equal requests, so identity is a good key (and only costs time where they do not).
            waits, hold = job.state is pending, job.hold
            key = (
                id(job.request), job.account, job.comment, job.partition, job.qos, waits, hold is none, hold is user,
                waits or job.requeue,
            )  # fmt: skip
            number = known.get(key)
            if number is None:
                number = known[key] = len(self.first)
                self.first.append(job)
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)


class Waiting(NamedTuple):
    """``alike``: numbers of patterns; ``priority``: Slurm's own; ``ready``: from when on only nodes are missing;
    ``banded``: we put it into a band."""

    jobs: Jobs
    ids: Ints
    alike: Ints
    priority: Floats
    submit: Floats
    ready: Floats
    tasks: Ints
    banded: Bools

    @staticmethod
    def of(jobs: Sequence[Job], patterns: Patterns) -> Waiting:
        return Waiting(
            jobs=np.fromiter(jobs, dtype=object, count=len(jobs)),
            ids=np.array([job.id for job in jobs], dtype=np.int64),
            alike=patterns.of(jobs),
            priority=own_priorities(jobs),
            submit=np.array([job.submit for job in jobs], dtype=np.float64),
            ready=np.array([ready_from(job) for job in jobs], dtype=np.float64),
            tasks=np.array([len(job.task_ids) or 1 for job in jobs], dtype=np.int64),
            banded=np.array([job.nice != 0 and has_band(job) for job in jobs], dtype=bool),
        )

    def in_turn(self, places: Ints) -> Ints:
        """Some of the jobs, by their places, in the order in which they are looked at."""
        return places[in_turn(self.priority[places], self.submit[places], self.ids[places])]


class Running(NamedTuple):
    """Jobs that run or are about to. ``since``: when they started; ``cpus``: what they hold."""

    jobs: Jobs
    ids: Ints
    alike: Ints
    priority: Floats
    since: Floats
    cpus: Ints

    @staticmethod
    def of(jobs: Sequence[Job], patterns: Patterns) -> Running:
        return Running(
            jobs=np.fromiter(jobs, dtype=object, count=len(jobs)),
            ids=np.array([job.id for job in jobs], dtype=np.int64),
            alike=patterns.of(jobs),
            priority=own_priorities(jobs),
            since=np.array([started(job) for job in jobs], dtype=np.float64),
            cpus=np.array([cpus_held(job) for job in jobs], dtype=np.int64),
        )


class Places(NamedTuple):
    """All shares of the running jobs: node and job by index, CPUs, bytes. Shares on unknown nodes are left out."""

    nodes: Ints
    owners: Ints
    cpus: Ints
    memory: Ints

    @staticmethod
    def of(running: Running, machine: Machine) -> Places:
        index = machine.index
        found = [
            (index[node], at, cpus, memory)
            for at, job in enumerate(running.jobs.tolist())
            for node, cpus, memory in job.shares
            if node in index
        ]
        return Places(*np.array(found, dtype=np.int64).reshape(-1, 4).T)


class Crowd:
    """``waiting``; ``running`` (or about to); ``completing``; ``suspended``: all in ascending order of the job id,
    whatever the order in the snapshot was."""

    def __init__(self, jobs: Mapping[int, Job], before: Crowd | None = None) -> None:
        self._jobs = jobs
        self.patterns: Patterns = before.patterns if before is not None else Patterns()
        old: Mapping[int, Job] = before._jobs if before is not None else {}
        new = [number for number, job in jobs.items() if old.get(number) is not job]
        gone = [number for number in new if number in old]
        if len(old) - len(gone) + len(new) != len(jobs):
            gone += old.keys() - jobs.keys()
        waiting: list[Job] = []
        running: list[Job] = []
        self.suspended: list[Job] = []
        self.completing: list[Job] = []
        by_state = {
            JobState.PENDING: waiting,
            JobState.CONFIGURING: running,
            JobState.RUNNING: running,
            JobState.SUSPENDED: self.suspended,
            JobState.COMPLETING: self.completing,
            JobState.ENDED: [],
        }
        for number in sorted(new):
            job = jobs[number]
            by_state[job.state].append(job)
        self.waiting = Waiting.of(waiting, self.patterns)
        self.running = Running.of(running, self.patterns)
        self._places: tuple[Machine, Running, Places] | None = None
        if before is not None:
            self.waiting = _merged(before.waiting, gone, self.waiting)
            self.running = _merged(before.running, gone, self.running)
            self.suspended = _same(before.suspended, jobs, self.suspended)
            self.completing = _same(before.completing, jobs, self.completing)
            self._places = before._places

    def places(self, machine: Machine) -> Places:
        """Where the running jobs are; kept for as long as neither nodes nor running jobs change."""
        known = self._places
        if known is None or known[0] is not machine or known[1] is not self.running:
            known = self._places = (machine, self.running, Places.of(self.running, machine))
        return known[2]

    @property
    def others(self) -> list[Job]:
        """Those that are on nodes, but do not run: completing and suspended ones."""
        return [*self.completing, *self.suspended]

    def find(self, refs: Iterable[str]) -> dict[str, Job]:
        """The jobs with these references; for a task that waits in its array, the array's record."""
        wanted = set(refs)
        found: dict[str, Job] = {}
        if not wanted:
            return found
        arrays = {ref.partition("_")[0] for ref in wanted}
        for job in self.waiting.jobs.tolist():
            if job.ref in wanted:
                found[job.ref] = job
            elif job.task_ids and str(job.array_id) in arrays:
                found.update((ref, job) for ref in task_refs(job) if ref in wanted)
        for job in (*self.running.jobs.tolist(), *self.others):
            if job.ref in wanted:
                found[job.ref] = job
        return found


Roll = TypeVar("Roll", Waiting, Running)


def _merged(old: Roll, gone: Sequence[int], new: Roll) -> Roll:
    """Some jobs taken out and others put in; the very same object if nothing changes."""
    kept = ~np.isin(old.ids, np.array(gone, dtype=np.int64))
    if not len(new.ids) and kept.all():
        return old
    if not kept.any():
        return new
    at = np.searchsorted(old.ids[kept], new.ids)
    columns = (np.insert(column[kept], at, more) for column, more in zip(old, new, strict=True))
    return type(old)(*columns)


def _same(old: Iterable[Job], jobs: Mapping[int, Job], new: Sequence[Job]) -> list[Job]:
    """The old ones that are still the very same, and the new ones."""
    return sorted([*(job for job in old if jobs.get(job.id) is job), *new], key=lambda job: job.id)


def task_refs(job: Job) -> list[str]:
    """References of the single tasks of a waiting array, or of the job itself."""
    if len(job.task_ids) < 2 or job.state is not JobState.PENDING:
        return [job.ref]
    return [f"{job.array_id}_{task}" for task in job.task_ids]


def cpus_held(job: Job) -> int:
    """CPUs that a running job holds: whole nodes for an exclusive one."""
    shares = job.shares
    if len(shares) == 1:
        return shares[0][1]
    return sum([share[1] for share in shares]) or job.request.cpus


def started(job: Job) -> float:
    """When a running job started; one that is about to has no time yet."""
    return job.start if job.start is not None else job.submit
