"""The jobs of a snapshot, sorted by what they do."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job, JobState
from omfs_daemon.cluster.snapshot import Snapshot


class Crowd:
    """``waiting``; ``running`` (or about to); ``present``: all that hold CPUs (running or completing); ``suspended``.

    In ascending order of the job id, whatever the order in the snapshot was.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.suspended: list[Job] = []
        self.completing: list[Job] = []
        group = {
            JobState.PENDING: self.waiting,
            JobState.CONFIGURING: self.running,
            JobState.RUNNING: self.running,
            JobState.SUSPENDED: self.suspended,
            JobState.COMPLETING: self.completing,
            JobState.ENDED: [],
        }
        jobs = snapshot.jobs
        for job_id in sorted(jobs):
            job = jobs[job_id]
            group[job.state].append(job)
        self.present = [*self.running, *self.completing]

    def find(self, refs: Iterable[str]) -> dict[str, Job]:
        """The jobs with these references; for a task that waits in its array, the array's record."""
        wanted = set(refs)
        found: dict[str, Job] = {}
        if not wanted:
            return found
        arrays = {ref.partition("_")[0] for ref in wanted}
        for job in self.waiting:
            if job.ref in wanted:
                found[job.ref] = job
            elif job.task_ids and str(job.array_id) in arrays:
                found.update((ref, job) for ref in task_refs(job) if ref in wanted)
        for job in (*self.present, *self.suspended):
            if job.ref in wanted:
                found[job.ref] = job
        return found


def task_refs(job: Job) -> list[str]:
    """References of the single tasks of a waiting array, or of the job itself."""
    if len(job.task_ids) < 2 or job.state is not JobState.PENDING:
        return [job.ref]
    return [f"{job.array_id}_{task}" for task in job.task_ids]
