"""One predictor for several threads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from omfs_daemon.daemon.learning.run_predictions import RunPredictions
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.prediction import Prediction
from omfs_daemon.predict.predictor_table import new_predictor


class Counted:
    """Stands for both the predictor and its lock. ``taken``: how much was predicted each time that it was held."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._predictor = new_predictor("ladder")

    def __enter__(self) -> None:
        self.taken.append(0)

    def __exit__(self, *_: object) -> None:
        pass

    def predict_all(self, jobs: Sequence[JobFeatures]) -> list[Prediction]:
        self.taken[-1] += len(jobs)
        return self._predictor.predict_all(jobs)


def test_others_may_ask_between_the_parts_of_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, counted = RunPredictions("ladder", (), keep_names=True), Counted()
    jobs = [JobFeatures(user="bob", limit=60.0 + number % 2500) for number in range(4000)]
    single = [runs.of_features([job])[0] for job in jobs]
    monkeypatch.setattr(runs, "_predictor", counted)
    monkeypatch.setattr(runs, "_lock", counted)
    assert runs.of_features(jobs) == single
    assert len({one.p90 for one in single}) == 2500, "each has its own"
    assert counted.taken == [1000, 1000, 500], "and is predicted once"
    assert runs.of_features([]) == []
    assert len(counted.taken) == 3
