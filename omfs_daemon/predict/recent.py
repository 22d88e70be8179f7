"""Predictors whose point is a mean: of the last two jobs of a kind, or of all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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

_QUANTILES = (0.1, 0.9)
_LATEST = 20


class LimitPredictor(RunTimePredictor):
    """The time limit: what Slurm itself takes a job's run time to be."""

    name = "limit"

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """Nothing is learned."""
        return False

    def predict(self, job: JobFeatures) -> Prediction:
        return at_limit(job)


class MeanPredictor(RunTimePredictor):
    """The mean run time of ended jobs of the same kind, else of the wider kind; p10 and p90 are those of the latest.

    Kinds are told apart by features; () is all jobs. p50 is the mean, which is what the published rules predict:
    Tsafrir, Etsion & Feitelson (2007) from a user's last two jobs, Murata et al. (section III-A) from all.

    last_only  predict from so many of the latest; None: from all
    unknown    seconds predicted while nothing has ended; None: the limit
    """

    def __init__(
        self, name: str, kinds: tuple[tuple[str, ...], ...], last_only: int | None, unknown: float | None = None
    ) -> None:
        self.name = name
        self._kinds = tuple(("+".join(fields) or "all", _key(fields), dict[object, _Ended]()) for fields in kinds)
        self._kept = last_only
        self._unknown = unknown

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """See ``RunTimePredictor``."""
        sample = sample_of(run, how)
        if sample is None:
            return False
        for _, key, known in self._kinds:
            kind = key(job)
            found = known.get(kind)
            if found is None:
                found = known[kind] = _Ended(self._kept)
            found.add(sample)
        return True

    def predict(self, job: JobFeatures) -> Prediction:
        """See ``RunTimePredictor``."""
        for title, key, known in self._kinds:
            found = known.get(key(job))
            if found is not None:
                low, high = weighted_quantiles(found.latest, [1.0] * len(found.latest), _QUANTILES)
                mean, samples = found.mean()
                return clipped(low, mean, high, mean, job, title, samples)
        if self._unknown is None:
            return at_limit(job)
        return clipped(self._unknown, self._unknown, job.limit, self._unknown, job, "nothing has ended", 0)


class _Ended:
    """The ended jobs of one kind: the latest, and sum and count of all."""

    __slots__ = ("count", "kept", "latest", "total")

    def __init__(self, kept: int | None) -> None:
        self.kept = kept
        self.latest: deque[Sample] = deque(maxlen=_LATEST if kept is None else kept)
        self.total = 0.0
        self.count = 0

    def add(self, sample: Sample) -> None:
        self.latest.append(sample)
        self.total += sample.run
        self.count += 1

    def mean(self) -> tuple[float, int]:
        """Seconds, and of how many jobs."""
        if self.kept is None:
            return self.total / self.count, self.count
        return sum(sample.run for sample in self.latest) / len(self.latest), len(self.latest)


def _key(fields: tuple[str, ...]) -> Callable[[JobFeatures], object]:
    return attrgetter(*fields) if fields else all_alike
