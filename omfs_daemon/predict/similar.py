"""The run time that would have been the most accurate for the latest jobs that were alike.

Recent and alike beats clever, and the mean of two run times that differ is neither of them: so the prediction is one of
the run times seen. The weights were chosen on four recorded workloads (docs/simulating.md, experiment predictors).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol

from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.prediction import (
    LEAST_SECONDS,
    HowEnded,
    Prediction,
    Sample,
    at_limit,
    clipped,
    sample_of,
    weighted_quantiles,
)

SIMILAR_KINDS = (
    (("user", "name", "cpus", "limit"), 1.0),
    (("user", "cpus", "limit"), 1.0),
    (("user", "name"), 1.0),
    (("user",), 0.1),
)
"""By which features jobs are alike, and the weight of such jobs; one that is alike in several ways has all of them."""
SIMILAR_LATEST = 10
SIMILAR_FADING = 0.7
"""The weight of a sample beside that of the next newer one of its kind."""

_QUANTILES = (0.1, 0.9)


class RunTimes(Protocol):
    """A list or an array."""

    def __getitem__(self, at: int, /) -> float: ...


def most_accurate(runs: RunTimes, weights: RunTimes, count: int) -> float:
    """Of the first ``count`` run times (seconds, above 0) the one with the greatest accuracy as a prediction of all of
    them: the weighted sum of the lesser over the greater; of equal ones the first. Compiled by the simulator too."""
    best, chosen = -1.0, 0.0
    for at in range(count):
        guess = runs[at]
        accuracy = 0.0
        for other in range(count):
            run = runs[other]
            accuracy += weights[other] * (run / guess if run < guess else guess / run)
        if accuracy > best:
            best, chosen = accuracy, guess
    return chosen


class SimilarPredictor:
    """p50 is the most accurate of the alike jobs' run times; p10 and p90 are their weighted quantiles."""

    name = "similar"

    def __init__(self) -> None:
        kinds: list[tuple[Callable[[JobFeatures], object], float]] = [
            (attrgetter(*fields), weight) for fields, weight in SIMILAR_KINDS
        ]
        self._kinds = tuple((key, weight, dict[object, deque[Sample]]()) for key, weight in kinds)

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """See ``RunTimePredictor``."""
        sample = sample_of(run, how)
        if sample is None:
            return False
        for key, _, known in self._kinds:
            known.setdefault(key(job), deque(maxlen=SIMILAR_LATEST)).appendleft(sample)
        return True

    def predict(self, job: JobFeatures) -> Prediction:
        """See ``RunTimePredictor``."""
        samples: list[Sample] = []
        weights: list[float] = []
        for key, most, known in self._kinds:
            weight = most
            for sample in known.get(key(job), ()):
                samples.append(sample)
                weights.append(weight)
                weight *= SIMILAR_FADING
        if not samples:
            return at_limit(job)
        runs = [min(max(sample.run, LEAST_SECONDS), max(job.limit, LEAST_SECONDS)) for sample in samples]
        low, high = weighted_quantiles(samples, weights, _QUANTILES)
        mean = sum(run * weight for run, weight in zip(runs, weights, strict=True)) / sum(weights)
        return clipped(low, most_accurate(runs, weights, len(runs)), high, mean, job, "user and alike", len(samples))
