"""What a prediction is, and the rules that hold for every predictor."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf, isfinite
from typing import NamedTuple, Protocol

from omfs_daemon.predict.features import JobFeatures

LEAST_SECONDS = 1.0
CORRECTION_SECONDS = (60.0, 300.0, 900.0, 1800.0, *(hours * 3600.0 for hours in (1, 2, 5, 10, 20, 50, 100)))
"""By how much a prediction that has passed is exceeded (Tsafrir, Etsion & Feitelson 2007)."""


class HowEnded(Enum):
    """Why a job's record was closed."""

    BY_ITSELF = "by itself"
    AT_LIMIT = "at its limit"
    CANCELLED = "cancelled"
    NODE_FAILED = "node failed"

    @property
    def teaches(self) -> bool:
        """Whether its run time says how long such jobs run."""
        return self in (HowEnded.BY_ITSELF, HowEnded.AT_LIMIT)


class Prediction(NamedTuple):
    """Seconds from the job's start; 1 <= p10 <= p50 <= p90 <= limit.

    key      which jobs it was learned from, as the names of the features that they share; "limit": from none
    samples  how many of them
    """

    p10: float
    p50: float
    p90: float
    mean: float
    key: str
    samples: int


class RunTimePredictor(Protocol):
    """Learns from each job as it ends."""

    name: str

    def ended(self, job: JobFeatures, run: float, how: HowEnded) -> bool:
        """Learn: the job ran for so many seconds, stops excluded. Whether it was learned from."""
        ...

    def predict(self, job: JobFeatures) -> Prediction:
        """How long the job will run, by what has ended so far."""
        ...

    def predict_all(self, jobs: Sequence[JobFeatures]) -> list[Prediction]:
        """Likewise of each of these jobs."""
        return [self.predict(job) for job in jobs]


class Sample(NamedTuple):
    """A run time in seconds. ``censored``: the job was ended at its limit and would have run longer."""

    run: float
    censored: bool


def sample_of(run: float, how: HowEnded) -> Sample | None:
    """What an ended job teaches; None: nothing. Clocks jump: times that cannot be are not learned."""
    if not how.teaches or not isfinite(run) or run < 0:
        return None
    return Sample(run, how is HowEnded.AT_LIMIT)


def clipped(p10: float, p50: float, p90: float, mean: float, job: JobFeatures, key: str, samples: int) -> Prediction:
    """In order, at least a second, at most the job's limit."""
    most = max(job.limit, LEAST_SECONDS)
    middle = min(max(p50, LEAST_SECONDS), most)
    return Prediction(
        min(max(p10, LEAST_SECONDS), middle),
        middle,
        min(max(p90, middle), most),
        min(max(mean, LEAST_SECONDS), most),
        key,
        samples,
    )


def at_limit(job: JobFeatures) -> Prediction:
    """Nothing is known but the limit, which may be inf."""
    return clipped(job.limit, job.limit, job.limit, job.limit, job, "limit", 0)


def expected_run(predicted: float, elapsed: float, limit: float) -> float:
    """Seconds that a job which has run for ``elapsed`` is expected to run in all: its prediction, and when that has
    passed, the first correction beyond it that is still to come; never more than its limit."""
    if predicted > elapsed:
        return min(predicted, limit)
    corrections = (predicted + more for more in CORRECTION_SECONDS)
    last = CORRECTION_SECONDS[-1]
    longest = predicted + ((elapsed - predicted) // last + 1) * last
    return min(next((end for end in corrections if end > elapsed), longest), limit)


def weighted_quantiles(samples: Sequence[Sample], weights: Sequence[float], shares: Sequence[float]) -> list[float]:
    """For each share, in ascending order, the least run time that at least this share of the weight does not exceed;
    inf where that is a censored one, which only says what was exceeded."""
    ordered = [(inf if censored else run, weight) for (run, censored), weight in zip(samples, weights, strict=True)]
    ordered.sort()
    total = sum(weights) * (1 - 1e-12)
    found: list[float] = []
    at, reached = 0, 0.0
    for share in shares:
        while reached < share * total:
            reached += ordered[at][1]
            at += 1
        found.append(ordered[max(at - 1, 0)][0])
    return found
