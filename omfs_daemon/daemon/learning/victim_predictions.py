"""How long running jobs will run still, as predicted, for the choice of victims (``predict.use_for_victims``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import RemainingTime, Snapshot
from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.predict.prediction import Prediction
from omfs_daemon.predict.run_draws import remaining_quantiles

LEAST_SAMPLES = 9
"""The longest of nine jobs that are alike is exceeded by the next one with one chance in ten. Nothing can be said from
fewer of when a job will have ended."""


Remaining = Callable[[Snapshot], Mapping[int, RemainingTime]]
"""As in ``Snapshot``, of its running jobs."""


def no_predictions(_: Snapshot) -> Mapping[int, RemainingTime]:
    """Time limits alone count."""
    return {}


class _Known(NamedTuple):
    """What was predicted of a run of a job with a time limit."""

    start: float | None
    time_limit: float
    prediction: Prediction

    def is_of(self, job: Job) -> bool:
        return (self.start, self.time_limit) == (job.start, job.time_limit)


class VictimPredictions:
    """For one thread. What was predicted of a job stays as it is while it runs, so that neither a plan and its
    validation nor one plan and the next differ for what was learned in between."""

    def __init__(self, runs: RunPredictions) -> None:
        self._runs = runs
        self._known: dict[int, _Known] = {}

    def of(self, snapshot: Snapshot) -> Mapping[int, RemainingTime]:
        """By raw id, of the running jobs of which something has been learned."""
        jobs = [job for job in snapshot.jobs.values() if job.runs and not job.set_aside]
        before = {job.id: self._known[job.id] for job in jobs if job.id in self._known}
        fresh = [job for job in jobs if job.id not in before or not before[job.id].is_of(job)]
        predictions = self._runs.of(fresh) if fresh else ()  # it may have to wait for other threads
        for job, prediction in zip(fresh, predictions, strict=True):
            before[job.id] = _Known(job.start, job.time_limit, prediction)
        self._known = {number: one for number, one in before.items() if one.prediction.samples}
        known = [(job, self._known[job.id].prediction) for job in jobs if job.id in self._known]
        limits, elapsed = [job.time_limit for job, _ in known], [job.run_time for job, _ in known]
        left = remaining_quantiles([one for _, one in known], limits, elapsed, (0.5, 0.9)).tolist()
        return {
            job.id: RemainingTime(likely, at_most if _is_certain(one, job) else job.remaining())
            for (job, one), (likely, at_most) in zip(known, left, strict=True)
        }


def _is_certain(prediction: Prediction, job: Job) -> bool:
    """Whether p90 says when the job will have ended."""
    return prediction.samples >= LEAST_SAMPLES and job.run_time < prediction.p90
