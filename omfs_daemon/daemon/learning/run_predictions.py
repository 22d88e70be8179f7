"""The predictor that is in force, and what it has learned; usable from several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.job_ends import JobEnd, features_of
from omfs_daemon.predict.prediction import Prediction, RunTimePredictor, at_limit
from omfs_daemon.predict.predictor_table import new_predictor

_AT_A_TIME = 1000
"""Jobs that are learned or predicted while nobody else can be answered."""


class RunPredictions:
    """``name``: of the predictor; ``rungs``: as in ``new_predictor``."""

    def __init__(self, name: str, rungs: tuple[tuple[str, ...], ...], keep_names: bool) -> None:
        self.name = name
        self._new: Callable[[], RunTimePredictor] = lambda: new_predictor(name, rungs)
        self._keep_names = keep_names
        self._predictor: RunTimePredictor = self._new()
        self._lock = Lock()

    def learn(self, ends: Iterable[JobEnd]) -> int:
        """How many jobs were learned from."""
        count, part = 0, list[JobEnd]()
        for end in ends:
            part.append(end)
            if len(part) == _AT_A_TIME:
                count += self._learn(self._predictor, part)
                part = []
        return count + self._learn(self._predictor, part)

    def learn_anew(self, ends: Iterable[JobEnd]) -> int:
        """Forget everything, and learn from these."""
        fresh = self._new()
        count = sum(fresh.ended(end.features, end.run, end.how) for end in ends if end.how is not None)
        with self._lock:
            self._predictor = fresh
        return count

    def _learn(self, predictor: RunTimePredictor, ends: Sequence[JobEnd]) -> int:
        with self._lock:
            return sum(predictor.ended(end.features, end.run, end.how) for end in ends if end.how is not None)

    def of(self, jobs: Sequence[Job]) -> list[Prediction]:
        """How long these jobs will run in all."""
        return self.of_features([features_of(job, self._keep_names) for job in jobs])

    def of_features(self, jobs: Sequence[JobFeatures]) -> list[Prediction]:
        """Likewise. Not all of many jobs at once: the daemon's cycle may wait for the prediction of one."""
        known: dict[JobFeatures, Prediction] = {}
        fresh = list(dict.fromkeys(jobs))
        for begin in range(0, len(fresh), _AT_A_TIME):
            part = fresh[begin : begin + _AT_A_TIME]
            with self._lock:
                known.update((job, self._predictor.predict(job)) for job in part)
        return [known[job] for job in jobs]

    @staticmethod
    def at_limits(jobs: Sequence[Job]) -> list[Prediction]:
        """As if every job ran to its limit."""
        return [at_limit(features_of(job)) for job in jobs]
