"""The predictor that is in force, and what it has learned; usable from several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.predict.boosted_trees import BoostedTrees
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.gbm import GbmPredictor
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
        self._times_anew = 0

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
            self._times_anew += 1
        return count

    @property
    def edition(self) -> int:
        """Another one after everything was forgotten."""
        return self._times_anew

    @property
    def lacks_model(self) -> bool:
        """Whether the predictor is to be trained, and has not been."""
        return isinstance(self._predictor, GbmPredictor) and not self._predictor.is_trained

    def use_model(self, model: BoostedTrees, edition: int) -> bool:
        """From now on; not if what it was trained on may have been forgotten since then."""
        with self._lock:
            if edition != self._times_anew or not isinstance(self._predictor, GbmPredictor):
                return False
            self._predictor.use(model)
        return True

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
                known.update(zip(part, self._predictor.predict_all(part), strict=True))
        return [known[job] for job in jobs]

    @staticmethod
    def at_limits(jobs: Sequence[Job]) -> list[Prediction]:
        """As if every job ran to its limit."""
        return [at_limit(features_of(job)) for job in jobs]
