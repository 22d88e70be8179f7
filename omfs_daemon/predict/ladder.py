"""Quantiles of the latest jobs of the most special kind of which enough have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from omfs_daemon.predict.features import JobFeatures, all_alike
from omfs_daemon.predict.prediction import (
    HowEnded,
    Prediction,
    RunTimePredictor,
    Sample,
    at_limit,
    clipped,
    sample_of,
    weighted_quantiles,
)

RUNGS = (
    ("user", "name", "cpus"),
    ("user", "name"),
    ("user", "cpus", "limit"),
    ("user",),
    ("account", "limit"),
    ("partition", "limit"),
)
"""By which features jobs are alike, the most special first; after the last come all jobs."""

LATEST = 20
ENOUGH = 2
FADING = 0.7
"""The weight of a sample beside that of the next newer one."""

_WEIGHTS = [FADING ** (LATEST - 1 - age) for age in range(LATEST)]
_QUANTILES = (0.1, 0.5, 0.9)


class LadderPredictor(RunTimePredictor):
    """``rungs``: features by which jobs are alike, the most special first."""

    name = "ladder"

    def __init__(self, rungs: Sequence[tuple[str, ...]] = RUNGS) -> None:
        kinds: list[tuple[str, Callable[[JobFeatures], object]]] = [
            ("+".join(rung), attrgetter(*rung)) for rung in rungs
        ]
        kinds.append(("all", all_alike))
        self._kinds = tuple((title, key, dict[object, _Latest]()) for title, key in kinds)

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """See ``RunTimePredictor``."""
        sample = sample_of(run, how)
        if sample is None:
            return False
        for _, key, known in self._kinds:
            kind = key(job)
            latest = known.get(kind)
            if latest is None:
                latest = known[kind] = _Latest()
            latest.add(sample)
        return True

    def predict(self, job: JobFeatures) -> Prediction:
        """See ``RunTimePredictor``."""
        for title, key, known in self._kinds:
            latest = known.get(key(job))
            if latest is not None and len(latest.samples) >= ENOUGH:
                return clipped(*latest.figures(), job, title, len(latest.samples))
        return at_limit(job)


class _Latest:
    """The latest jobs of one kind. What they say is worked out once: many jobs of a queue are alike."""

    __slots__ = ("_figures", "samples")

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=LATEST)
        self._figures: tuple[float, float, float, float] | None = None

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._figures = None

    def figures(self) -> tuple[float, float, float, float]:
        """p10, p50, p90, and mean, in seconds."""
        if self._figures is None:
            weights = _WEIGHTS[-len(self.samples) :]
            p10, p50, p90 = weighted_quantiles(self.samples, weights, _QUANTILES)
            mean = sum(weight * one.run for weight, one in zip(weights, self.samples, strict=True)) / sum(weights)
            self._figures = p10, p50, p90, mean
        return self._figures
