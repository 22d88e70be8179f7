"""The answers to ``omfs predict``."""

from __future__ import annotations

from math import inf
from typing import TypedDict

from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.learning.prediction_service import PredictionService
from omfs_daemon.daemon.learning.scores import scores
from omfs_daemon.errors import ControlError, DeniedError
from omfs_daemon.predict.features import JobFeatures
from omfs_daemon.predict.job_ends import features_of, named_features
from omfs_daemon.predict.prediction import Prediction


class PredictionView(TypedDict):
    """Seconds. ``limit``: null: none. ``key``: the features that the jobs share of which it was learned; "limit": of
    none. ``job``: "" for jobs that are to be submitted."""

    job: str
    user: str
    p10: float | None
    p50: float | None
    p90: float | None
    mean: float | None
    limit: float | None
    key: str
    samples: int


class LearningView(TypedDict):
    """``jobs``: that are known; ``days_left``: of accounting to be read; ``error``: why that is not read now."""

    predictor: str
    jobs: int
    days_left: int
    error: str


class PredictView(TypedDict):
    predictions: list[PredictionView]
    learning: LearningView


class ScoreView(TypedDict):
    """``group``: values of what was asked for by; None: nothing was foreseen. The figures as in ``Score``."""

    group: list[str]
    predictor: str
    jobs: int
    accuracy: float
    median_relative_error: float
    mean_absolute_error_seconds: float
    under_predicted: float
    p90_held: float
    starts: int
    start_p90_held: float | None
    start_median_error_seconds: float | None
    slurm_start_median_error_seconds: float | None


class ScoresView(TypedDict):
    by: list[str]
    scores: list[ScoreView]
    learning: LearningView


def learning_view(service: PredictionService) -> LearningView:
    days, error = service.accounting.state
    return LearningView(predictor=service.runs.name, jobs=service.store.count(), days_left=days, error=error)


def predict_jobs(service: PredictionService, jobs: list[Job]) -> PredictView:
    """The run times of these jobs, which the caller may see."""
    found = service.runs.of(jobs)
    views = [_view(brief_ref(job.ref), features_of(job), run) for job, run in zip(jobs, found, strict=True)]
    return PredictView(predictions=views, learning=learning_view(service))


def predict_named(caller: Caller, service: PredictionService, user: str, name: str) -> PredictView:
    """The run time of a job that this user (the caller, if none is named) would submit under this name."""
    asked = user or caller.user
    if asked != caller.user and not caller.is_operator:
        raise DeniedError(f"predictions for jobs of {asked}: only for themselves and for operators")
    features = named_features(JobFeatures(user=asked), name, service.keep_names)
    (run,) = service.runs.of_features([features])
    return PredictView(predictions=[_view("", features, run)], learning=learning_view(service))


def _view(job: str, features: JobFeatures, run: Prediction) -> PredictionView:
    return PredictionView(
        job=job,
        user=features.user,
        p10=_finite(run.p10),
        p50=_finite(run.p50),
        p90=_finite(run.p90),
        mean=_finite(run.mean),
        limit=_finite(features.limit),
        key=run.key,
        samples=run.samples,
    )


def _finite(seconds: float) -> float | None:
    return round(seconds, 1) if seconds < inf else None


def scores_view(caller: Caller, service: PredictionService, since: float, by: str) -> ScoresView:
    """Of the caller's own jobs; of all for an operator."""
    names = [name for name in by.split(",") if name]
    user = None if caller.is_operator else caller.user
    found = scores(service.store.scored(since, user), names)
    views = [
        ScoreView(
            group=list(one.group),
            predictor=one.group[names.index("predictor")] if "predictor" in names else service.runs.name,
            jobs=one.jobs,
            accuracy=round(one.accuracy, 4),
            median_relative_error=round(one.median_relative_error, 4),
            mean_absolute_error_seconds=round(one.mean_absolute_error, 1),
            under_predicted=round(one.under_predicted, 4),
            p90_held=round(one.p90_held, 4),
            starts=one.starts,
            start_p90_held=one.start_p90_held,
            start_median_error_seconds=one.start_median_error,
            slurm_start_median_error_seconds=one.slurm_start_median_error,
        )
        for one in found
    ]
    return ScoresView(by=names, scores=views, learning=learning_view(service))


def available(service: PredictionService | str) -> PredictionService:
    """ControlError if predictions are off."""
    if isinstance(service, str):
        raise ControlError(service)
    return service
