"""How good predictions have been. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import NamedTuple

from omfs_daemon.daemon.store.ended_jobs import ScoredJob
from omfs_daemon.errors import ConfigError
from omfs_daemon.predict.prediction import HowEnded

GROUPS = ("partition", "user", "predictor")


class Score(NamedTuple):
    """Of jobs that have ended, by what was foreseen when they were first seen; None where nothing was.

    accuracy              mean of the smaller of p50 and run time, divided by the greater (Tsafrir et al. 2007)
    median_relative_error of p50, in run times
    under_predicted       share that ran longer than p50
    p90_held              share that ran no longer than p90; that of a job ended at its limit held if it was the limit
    start_p90_held, start_median_error, slurm_start_median_error  of starts, in seconds; Slurm's own beside
    """

    group: tuple[str, ...]
    jobs: int
    accuracy: float
    median_relative_error: float
    mean_absolute_error: float
    under_predicted: float
    p90_held: float
    starts: int
    start_p90_held: float | None
    start_median_error: float | None
    slurm_start_median_error: float | None


def scores(jobs: Iterable[ScoredJob], by: Sequence[str]) -> list[Score]:
    """One for each group, the largest first; ConfigError for an unknown name in ``by``."""
    unknown = [name for name in by if name not in GROUPS]
    if unknown:
        raise ConfigError(f"--by {unknown[0]!r}: must be one or more of {', '.join(GROUPS)}, with commas between them")
    groups: dict[tuple[str, ...], list[ScoredJob]] = {}
    for job in jobs:
        groups.setdefault(tuple(str(getattr(job, name)) for name in by), []).append(job)
    return sorted((_score(group, found) for group, found in groups.items()), key=lambda one: (-one.jobs, one.group))


def held(job: ScoredJob) -> bool:
    """Whether it ran no longer than its p90."""
    return job.run <= job.p90 * (1 + 1e-9) or (job.how is HowEnded.AT_LIMIT and job.run <= job.p90 + 60)


def start_error(job: ScoredJob) -> float | None:
    """Seconds by which it started later (or earlier) than foreseen."""
    return None if job.start_p50 is None else abs(job.start - job.start_p50)


def _score(group: tuple[str, ...], jobs: Sequence[ScoredJob]) -> Score:
    runs = [max(1.0, job.run) for job in jobs]
    points = [max(1.0, job.p50) for job in jobs]
    pairs = list(zip(points, runs, strict=True))
    errors = [error for job in jobs if (error := start_error(job)) is not None]
    slurms = [abs(job.start - job.slurm_start) for job in jobs if job.slurm_start is not None]
    bounds = [job.start <= job.start_p90 for job in jobs if job.start_p90 is not None]
    return Score(
        group,
        len(jobs),
        fmean(min(pair) / max(pair) for pair in pairs),
        median(abs(point - run) / run for point, run in pairs),
        fmean(abs(point - run) for point, run in pairs),
        fmean(run > point for point, run in pairs),
        fmean(held(job) for job in jobs),
        len(errors),
        fmean(bounds) if bounds else None,
        median(errors) if errors else None,
        median(slurms) if slurms else None,
    )
