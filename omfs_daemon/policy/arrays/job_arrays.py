"""The jobs of a snapshot as arrays, by state.

A site may have 100,000 jobs, few of which change from one snapshot to the next, so the arrays are made from the
previous ones, and only new ``Job`` objects are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from omfs_daemon.cluster.holds import ready_from
from omfs_daemon.cluster.jobs import Hold, Job, JobState, differ_in_run_time_only
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints, NodeArrays
from omfs_daemon.policy.rules.queue_order import has_band, own_priorities, sorted_indices

Floats = NDArray[np.float64]
Jobs = NDArray[Any]


class JobPatterns:
    """Numbers for jobs that are alike in request, account, and all that the rules use; ``first``: one job of each."""

    def __init__(self) -> None:
        self.first: list[Job] = []
        self._known: dict[tuple[object, ...], int] = {}

    def of(self, jobs: Iterable[Job]) -> Ints:
        known, pending, none, user = self._known, JobState.PENDING, Hold.NONE, Hold.USER
        numbers = []
        for job in jobs:
            # Parsers share equal requests, so identity is a good key; where they do not, it only costs time.
            waits, hold = job.state is pending, job.hold
            key = (
                id(job.request), job.account, job.comment, job.partition, job.qos, waits, hold is none, hold is user,
                waits or job.requeue, job.batch, job.set_aside,
            )  # fmt: skip
            number = known.get(key)
            if number is None:
                number = known[key] = len(self.first)
                self.first.append(job)
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)


class WaitingJobs(NamedTuple):
    """Waiting jobs.

    ``alike``: pattern numbers; ``priority``: Slurm's, without our band; ``ready``: when the job will wait for nodes
    only; ``banded``: we put it into a band.
    """

    jobs: Jobs
    ids: Ints
    alike: Ints
    priority: Floats
    submit: Floats
    ready: Floats
    tasks: Ints
    banded: Bools

    @staticmethod
    def of(jobs: Sequence[Job], patterns: JobPatterns) -> WaitingJobs:
        return WaitingJobs(
            jobs=np.fromiter(jobs, dtype=object, count=len(jobs)),
            ids=np.array([job.id for job in jobs], dtype=np.int64),
            alike=patterns.of(jobs),
            priority=own_priorities(jobs),
            submit=np.array([job.submit for job in jobs], dtype=np.float64),
            ready=np.array([ready_from(job) for job in jobs], dtype=np.float64),
            tasks=np.array([len(job.task_ids) or 1 for job in jobs], dtype=np.int64),
            banded=np.array([job.nice != 0 and has_band(job) for job in jobs], dtype=bool),
        )

    def in_queue_order(self, indices: Ints) -> Ints:
        """These indices in queue order."""
        return indices[sorted_indices(self.priority[indices], self.submit[indices], self.ids[indices])]


class RunningJobs(NamedTuple):
    """Running and configuring jobs. ``since``: start times; ``cpus``: allocated CPUs."""

    jobs: Jobs
    ids: Ints
    alike: Ints
    priority: Floats
    since: Floats
    cpus: Ints

    @staticmethod
    def of(jobs: Sequence[Job], patterns: JobPatterns) -> RunningJobs:
        return RunningJobs(
            jobs=np.fromiter(jobs, dtype=object, count=len(jobs)),
            ids=np.array([job.id for job in jobs], dtype=np.int64),
            alike=patterns.of(jobs),
            priority=own_priorities(jobs),
            since=np.array([start_time(job) for job in jobs], dtype=np.float64),
            cpus=np.array([cpus_held(job) for job in jobs], dtype=np.int64),
        )

    def with_jobs(self, jobs: Sequence[Job]) -> RunningJobs:
        """These jobs in place of those with the same ids, from which they differ in their run time only."""
        if not jobs:
            return self
        objects = self.jobs.copy()
        objects[np.searchsorted(self.ids, [job.id for job in jobs])] = jobs
        return self._replace(jobs=objects)


class RunningAllocations(NamedTuple):
    """The allocations of running jobs: index of node and of job, CPUs, bytes; those on unknown nodes are left out."""

    nodes: Ints
    owners: Ints
    cpus: Ints
    memory: Ints

    @staticmethod
    def of(running: RunningJobs, node_arrays: NodeArrays) -> RunningAllocations:
        index = node_arrays.index
        found = [
            (index[node], at, cpus, memory)
            for at, job in enumerate(running.jobs.tolist())
            for node, cpus, memory in job.allocations
            if node in index
        ]
        return RunningAllocations(*np.array(found, dtype=np.int64).reshape(-1, 4).T)


class JobArrays:
    """The jobs by state, each in ascending order of job id: ``waiting``, ``running`` (and configuring), ``completing``,
    ``suspended``; and ``set_aside``, those that wait and of which nothing is decided: they are not in ``waiting``."""

    def __init__(self, jobs: Mapping[int, Job], before: JobArrays | None = None) -> None:
        self._jobs = jobs
        self.patterns: JobPatterns = before.patterns if before is not None else JobPatterns()
        old: Mapping[int, Job] = before._jobs if before is not None else {}
        changed = [number for number, job in jobs.items() if old.get(number) is not job]
        ran_on = [number for number in changed if number in old and _ran_on(old[number], jobs[number])]
        new = [*set(changed).difference(ran_on)]
        gone = [number for number in new if number in old]
        if len(old) - len(gone) + len(new) != len(jobs):
            gone += old.keys() - jobs.keys()
        waiting: list[Job] = []
        running: list[Job] = []
        self.suspended: list[Job] = []
        self.completing: list[Job] = []
        self.set_aside: list[Job] = []
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
            waits_aside = job.set_aside and job.state is JobState.PENDING
            (self.set_aside if waits_aside else by_state[job.state]).append(job)
        self.waiting = WaitingJobs.of(waiting, self.patterns)
        begun = self.running = RunningJobs.of(running, self.patterns)
        self._allocations: _KnownAllocations | None = None
        if before is not None:
            self.waiting = _merged(before.waiting, gone, self.waiting)
            self.running = _merged(before.running, gone, begun).with_jobs([jobs[number] for number in ran_on])
            self.suspended = _same(before.suspended, jobs, self.suspended)
            self.completing = _same(before.completing, jobs, self.completing)
            self.set_aside = _same(before.set_aside, jobs, self.set_aside)
            self._allocations = _merged_allocations(before, gone, begun, self.running)

    def allocations_on(self, node_arrays: NodeArrays) -> RunningAllocations:
        """The allocations of the running jobs; kept for as long as neither nodes nor running jobs change."""
        known = self._allocations
        if known is None or known[0] is not node_arrays:
            known = self._allocations = node_arrays, RunningAllocations.of(self.running, node_arrays)
        return known[1]

    @property
    def others(self) -> list[Job]:
        """Jobs that are on nodes but do not run: completing and suspended."""
        return [*self.completing, *self.suspended]

    def find(self, refs: Iterable[str]) -> dict[str, Job]:
        """The jobs with these references; for a waiting array task, the record of its array."""
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


_KnownAllocations = tuple[NodeArrays, RunningAllocations]
Columns = TypeVar("Columns", WaitingJobs, RunningJobs)


def _merged(old: Columns, gone: Sequence[int], new: Columns) -> Columns:
    """``old`` without the jobs ``gone`` and with those of ``new``; the same object if nothing changes."""
    kept = ~np.isin(old.ids, np.array(gone, dtype=np.int64))
    if not len(new.ids) and kept.all():
        return old
    if not kept.any():
        return new
    at = np.searchsorted(old.ids[kept], new.ids)
    columns = (np.insert(column[kept], at, more) for column, more in zip(old, new, strict=True))
    return type(old)(*columns)


def _ran_on(old: Job, job: Job) -> bool:
    """Whether a running job is as before, but for its run time: most are, in every poll."""
    return old.allocations is job.allocations and job.runs and differ_in_run_time_only(old, job)


def _merged_allocations(
    before: JobArrays, gone: Sequence[int], begun: RunningJobs, running: RunningJobs
) -> _KnownAllocations | None:
    """The allocations of ``running``, from those known before: without those of ``gone``, with those of ``begun``."""
    known, old = before._allocations, before.running
    if known is None or running.cpus is old.cpus:
        return known
    node_arrays, allocations = known
    kept = ~np.isin(old.ids, np.array(gone, dtype=np.int64))[allocations.owners]
    parts = [RunningAllocations(*(column[kept] for column in allocations)), RunningAllocations.of(begun, node_arrays)]
    owners = [
        np.searchsorted(running.ids, ids[part.owners]) for ids, part in zip((old.ids, begun.ids), parts, strict=True)
    ]
    columns = [
        np.concatenate(column)
        for column in zip(*(part._replace(owners=at) for part, at in zip(parts, owners, strict=True)), strict=True)
    ]
    order = np.argsort(columns[1], kind="stable")
    return node_arrays, RunningAllocations(*(column[order] for column in columns))


def _same(old: Iterable[Job], jobs: Mapping[int, Job], new: Sequence[Job]) -> list[Job]:
    """The old jobs that are still the same objects, and the new ones."""
    return sorted([*(job for job in old if jobs.get(job.id) is job), *new], key=lambda job: job.id)


def task_refs(job: Job) -> list[str]:
    """References of the tasks of a waiting array, or of the job itself."""
    if len(job.task_ids) < 2 or job.state is not JobState.PENDING:
        return [job.ref]
    return [f"{job.array_id}_{task}" for task in job.task_ids]


def cpus_held(job: Job) -> int:
    """The CPUs allocated to a running job; whole nodes if it is exclusive."""
    allocations = job.allocations
    if len(allocations) == 1:
        return allocations[0][1]
    return sum([allocation[1] for allocation in allocations]) or job.request.cpus


def start_time(job: Job) -> float:
    """When a running job started; the submit time of one that has no start time yet."""
    return job.start if job.start is not None else job.submit
