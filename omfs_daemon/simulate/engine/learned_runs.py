"""Run times that are learned in a simulation which is not compiled, by the daemon's own predictors.

The same numbers as those of ``simulate/kernels/run_history.py`` (tests hold them equal).
"""

from __future__ import annotations

from math import inf

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
from omfs_daemon.predict.prediction import HowEnded, Prediction
from omfs_daemon.predict.predictor_table import new_predictor
from omfs_daemon.predict.run_draws import remaining_quantiles
from omfs_daemon.simulate.engine.daily_training import DailyTraining
from omfs_daemon.simulate.workload.workload import Workload

_DAY = 86400.0


class LearnedRuns:
    """``name``: of the predictor; ``chosen``: the jobs of the workload that are simulated, by which they are known.
    ``seconds``: what was predicted of each when it came; nan of one that has not."""

    def __init__(self, workload: Workload, name: str, chosen: Ints) -> None:
        self._workload, self._chosen = workload, chosen
        self._predictor = new_predictor(name)
        self._training: DailyTraining | None = None
        if isinstance(self._predictor, GbmPredictor):
            self._training = DailyTraining(self._predictor, len(chosen))
        self.seconds: Floats = np.full(len(chosen), np.nan)

    def arrive(self, job: int) -> float:
        """What is predicted of a job that comes now; one without a limit, of whose kind nothing has ended, is taken to
        run for a day."""
        features = self._features(job)
        if self._training is not None:
            self._training.arrive(job, features, float(self._workload.submit[self._chosen[job]]))
        expected = self._predictor.predict(features).p50
        self.seconds[job] = _DAY if expected == inf else expected
        return float(self.seconds[job])

    def end(self, job: int, run: float, now: float) -> None:
        """The job has ended after so many seconds of work."""
        if self._training is not None:
            self._training.end(job, run, now)
        self._predictor.ended(self._features(job), run, HowEnded.BY_ITSELF)

    def remaining(self, jobs: list[int], worked: list[float]) -> list[float]:
        """Seconds that jobs which have come, and worked for so long, will run still."""
        points = [float(self.seconds[job]) for job in jobs]
        known = [Prediction(point, point, point, point, "", 1) for point in points]
        limits = [float(self._workload.limit[self._chosen[job]]) for job in jobs]
        left: list[float] = remaining_quantiles(known, limits, worked, (0.5,))[:, 0].tolist()
        return left

    def _features(self, number: int) -> JobFeatures:
        return features_in(self._workload, int(self._chosen[number]))


def features_in(workload: Workload, job: int) -> JobFeatures:
    """What a predictor knows of a job of the workload."""
    name = workload.job_names[workload.job_name[job]]
    return JobFeatures(
        user=workload.users[workload.user[job]],
        account=workload.accounts[workload.account[job]],
        command=name,
        name=name,
        cpus=int(workload.cpus[job]),
        limit=float(workload.limit[job]),
    )
