"""Notices in snapshots that runs of jobs have ended. Pure but for what it remembers."""

from __future__ import annotations

from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.run_report import run_report
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.job_ends import JobEnd, features_of, how_ended
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.slurm.gateway import EndedJob


class Noticed(NamedTuple):
    """``gone``: jobs are listed no longer, and Slurm has to be asked how they ended. ``came_back``: runs of jobs that
    are in the queue again. ``new``: there are jobs that wait and were not listed before."""

    gone: bool
    came_back: tuple[JobEnd, ...]
    new: bool


class EndedWatch:
    """``keep_names`` as in ``stored_name``."""

    def __init__(self, keep_names: bool) -> None:
        self._keep_names = keep_names
        self._ran: dict[int, Job] = {}
        self._waited: frozenset[int] = frozenset()
        self._is_first = True

    def observe(self, snapshot: Snapshot) -> Noticed:
        """Compare with the snapshot before; after the first one, Slurm is asked in any case."""
        jobs, pending = snapshot.jobs, JobState.PENDING
        waiting = frozenset(number for number, job in jobs.items() if job.state is pending)
        before, self._ran = self._ran, {n: job for n, job in jobs.items() if n not in waiting and _has_run(job)}
        left = [number for number in before if number not in self._ran]
        back = [before[number] for number in left if number in waiting]
        came_back = tuple(end_of(job, None, self._keep_names) for job in back if job.start is not None)
        waited, self._waited = self._waited, waiting
        gone = self._is_first or len(left) > len(back)
        self._is_first = False
        return Noticed(gone, came_back, not self._waited <= waited)


def _has_run(job: Job) -> bool:
    return job.runs or job.state in (JobState.SUSPENDED, JobState.COMPLETING)


def job_end(ended: EndedJob, keep_names: bool) -> JobEnd | None:
    """None if it never ran, or cannot be read."""
    job, how = ended.job, how_ended(ended.state)
    if how is None or job.start is None or job.set_aside or job.request.cpus <= 0:
        return None
    return end_of(job, how, keep_names)


def goes_on(job: Job) -> bool:
    """Whether omfs-run reported on it, so that it went on from checkpoints of its earlier runs."""
    return run_report(job) is not None


def end_of(job: Job, how: HowEnded | None, keep_names: bool) -> JobEnd:
    """The end of the run that Slurm shows of a job that has started."""
    start = float(int(job.start or 0.0))  # whole seconds, as accounting has them
    features: JobFeatures = features_of(job, keep_names)
    return JobEnd(job.id, start, start + job.run_time, features, job.run_time, how)
