"""How long running jobs will run still, by their time limits, or as predicted where victims are chosen by that."""

from __future__ import annotations

from collections.abc import Mapping

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import RemainingTime


class RemainingTimes:
    """``predicted``: as in ``Snapshot``. No job runs beyond its time limit, whatever was predicted."""

    def __init__(self, predicted: Mapping[int, RemainingTime]) -> None:
        self._predicted = predicted

    def likely(self, job: Job) -> float:
        """Seconds; what the order and the cost of victims count with."""
        known = self._predicted.get(job.id)
        return job.remaining() if known is None else min(known.likely, job.remaining())

    def longest(self, job: Job) -> float:
        """Seconds; a job is left to run if preempting it would take longer than this."""
        known = self._predicted.get(job.id)
        return job.remaining() if known is None else min(known.at_most, job.remaining())

    def whole_run(self, job: Job) -> float:
        """Seconds that the job is expected to run in all."""
        return job.run_time + self.likely(job) if job.id in self._predicted else job.time_limit
