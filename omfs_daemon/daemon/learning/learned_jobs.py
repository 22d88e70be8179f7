"""Ended jobs on their way into the store and the predictor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omfs_daemon.daemon.learning.model_training import ModelTraining
from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.daemon.store.ended_jobs import EndedJobs
from omfs_daemon.predict.job_ends import JobEnd


class LearnedJobs:
    """``count`` is called with jobs that were learned from; ``training``: of the predictor, if it needs any."""

    def __init__(
        self,
        store: EndedJobs,
        predictions: RunPredictions,
        count: Callable[[Sequence[JobEnd]], None],
        training: ModelTraining | None = None,
    ) -> None:
        self.store = store
        self._predictions = predictions
        self._count = count
        self._training = training

    def load(self) -> None:
        """Learn from what is stored."""
        self._predictions.learn(self.store.all())
        self._count(())

    def learn_anew(self) -> None:
        """From what is stored, after some of it has been deleted, or older jobs were added."""
        self._predictions.learn_anew(self.store.all())
        self._count(())

    def learn(self, ends: Sequence[JobEnd], day: tuple[float, float] | None = None) -> None:
        """From those that teach and were not known; ``day``: of accounting that has been read with them."""
        fresh = self.store.add(ends, day)
        self._predictions.learn(fresh)
        self._count(fresh)

    def train(self) -> None:
        """Do what is due for it."""
        if self._training is not None:
            self._training.step()

    def close(self) -> None:
        """End a training that is under way."""
        if self._training is not None:
            self._training.close()

    def whole(self, end: JobEnd, went_on: bool) -> JobEnd:
        """With the job's earlier runs, if it went on from where they were."""
        if not went_on or end.how is None:
            return end
        return end._replace(run=end.run + self.store.earlier_runs(end.job, end.start, end.features.user))
