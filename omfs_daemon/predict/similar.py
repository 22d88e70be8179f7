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
    RunTimePredictor,
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

_WEIGHTS = tuple([most * SIMILAR_FADING**age for age in range(SIMILAR_LATEST)] for _, most in SIMILAR_KINDS)
_ALIKE = 1.0
"""Jobs of less weight are those of the same user alone."""
_QUANTILES = (0.1, 0.9)


class RunTimes(Protocol):
    """A list or an array."""

    def __getitem__(self, at: int, /) -> float: ...


def most_accurate(runs: RunTimes, weights: RunTimes, count: int) -> float:
    """Of the first ``count`` run times (seconds, above 0, in ascending order) the one with the greatest accuracy as a
    prediction of all of them: the weighted sum of the lesser over the greater; of equal ones the shortest. Compiled by
    the simulator too."""
    longer = 0.0  # the sum of weights over run times of those that are longer, which a guess is divided by
    for at in range(count):
        longer += weights[at] / runs[at]
    shorter, best, chosen = 0.0, -1.0, 0.0
    for at in range(count):
        longer -= weights[at] / runs[at]
        shorter += weights[at] * runs[at]
        accuracy = shorter / runs[at] + longer * runs[at]
        if accuracy > best:
            best, chosen = accuracy, runs[at]
    return chosen


class SimilarPredictor(RunTimePredictor):
    """p50 is the most accurate of the alike jobs' run times; p10 and p90 are their weighted quantiles. Its samples are
    the jobs that are alike by more than their user, if there are any; each counts once."""

    name = "similar"

    def __init__(self) -> None:
        kinds: list[tuple[Callable[[JobFeatures], object], float]] = [
            (attrgetter(*fields), weight) for fields, weight in SIMILAR_KINDS
        ]
        self._kinds = tuple((key, weight, dict[object, deque[Sample]]()) for key, weight in kinds)
        self._known: dict[str, dict[object, Prediction]] = {}
        """By user and the most special kind, which has all features that count: many jobs of a queue are alike, and
        only jobs of the same user teach anything new."""

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """See ``RunTimePredictor``."""
        sample = sample_of(run, how)
        if sample is None:
            return False
        for key, _, known in self._kinds:
            known.setdefault(key(job), deque(maxlen=SIMILAR_LATEST)).appendleft(sample)
        self._known[job.user] = {}
        return True

    def predict(self, job: JobFeatures) -> Prediction:
        """See ``RunTimePredictor``."""
        known = self._known.get(job.user)
        if known is None:  # no job of the user has ended
            return at_limit(job)
        kind = self._kinds[0][0](job)
        found = known.get(kind)
        if found is None:
            found = known[kind] = self._predicted(job)
        return found

    def _predicted(self, job: JobFeatures) -> Prediction:
        samples: list[Sample] = []
        weights: list[float] = []
        alike = 0
        for (key, most, known), of_kind in zip(self._kinds, _WEIGHTS, strict=True):
            latest = known.get(key(job), ())
            samples.extend(latest)
            weights.extend(of_kind[: len(latest)])
            alike = max(alike, len(latest) if most >= _ALIKE or not alike else 0)
        low, high = weighted_quantiles(samples, weights, _QUANTILES)
        limit = max(job.limit, LEAST_SECONDS)
        ordered = sorted(zip([sample.run for sample in samples], weights, strict=True))
        runs = [min(max(run, LEAST_SECONDS), limit) for run, _ in ordered]
        weights = [weight for _, weight in ordered]
        mean = sum([run * weight for run, weight in zip(runs, weights, strict=True)]) / sum(weights)
        return clipped(low, most_accurate(runs, weights, len(runs)), high, mean, job, "user and alike", alike)
