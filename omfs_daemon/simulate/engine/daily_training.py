"""A model that is trained while a simulation runs which is not compiled: at the first job of each day."""

from __future__ import annotations

import numpy as np

from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.gbm_training import trained, training_rows
from omfs_daemon.predict.run_inputs import INPUTS, target_of

_DAY = 86400.0


class DailyTraining:
    """Of the predictor, on jobs that ended before the day began; ``jobs``: how many there will be."""

    def __init__(self, predictor: GbmPredictor, jobs: int) -> None:
        self._predictor = predictor
        self._day = -np.inf
        self._inputs = np.zeros((jobs, INPUTS))
        self._targets, self._ended = np.zeros(jobs), np.full(jobs, np.nan)

    def arrive(self, job: int, features: JobFeatures, now: float) -> None:
        """A job comes, and is to be predicted."""
        if now // _DAY > self._day:
            self._day = now // _DAY
            rows = training_rows(self._ended, self._day * _DAY)
            if len(rows):
                self._predictor.use(trained(self._inputs[rows], self._targets[rows]))
        self._inputs[job] = self._predictor.inputs(features).values

    def end(self, job: int, run: float, now: float) -> None:
        """It has ended."""
        self._ended[job], self._targets[job] = now, target_of(float(self._inputs[job, 0]), run)
