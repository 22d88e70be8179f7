"""The rows of results.csv, categories.csv, settings.csv and optimum.csv."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES
from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021_cases import (
    ALL,
    JIT,
    SETTINGS,
    CaseKey,
    DrawResult,
    WeekVariant,
    pooled,
)
from omfs_daemon.simulate.results.realtime_figures import spreading

Results = Mapping[CaseKey, DrawResult]


@dataclass(frozen=True, slots=True)
class WeekRow:
    """One simulation; bsd: bounded slowdown, turnarounds in seconds. ``workload``: with the variation of the real-time
    jobs, if it is not the paper's default; ``jobs``: of the whole log."""

    workload: str
    policy: str
    scheme: str
    realtime_percent: int
    draw: int
    jobs: int
    realtime_jobs: int
    realtime_mean_bsd: float
    realtime_median_bsd: float
    realtime_p95_bsd: float
    batch_mean_bsd: float
    batch_median_bsd: float
    batch_p95_bsd: float
    realtime_mean_turnaround: float
    batch_mean_turnaround: float
    preemptions: int
    lost_cpu_hours: float
    utilisation: float
    productive_utilisation: float


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """Bounded slowdown of the jobs of all draws together; ``class_``: realtime or batch."""

    workload: str
    policy: str
    scheme: str
    realtime_percent: int
    category: str
    class_: str
    jobs: int
    mean: float
    median: float
    p5: float
    p25: float
    p75: float
    p95: float


@dataclass(frozen=True, slots=True)
class SettingRow:
    """Means over draws, with 10 % real-time jobs and JIT."""

    workload: str
    setting: str
    realtime_mean_bsd: float
    realtime_p95_bsd: float
    batch_mean_bsd: float
    batch_p95_bsd: float
    preemptions: float


def week_rows(results: Results) -> Iterator[WeekRow]:
    """Of all simulations with the authors' settings."""
    for key, found in results.items():
        if key.setting == next(iter(SETTINGS)):
            yield _week_row(key, found)


def _week_row(key: CaseKey, found: DrawResult) -> WeekRow:
    realtime, batch = (pooled([found], is_realtime) for is_realtime in (True, False))
    of_realtime, of_batch = spreading(realtime[0]), spreading(batch[0])
    return WeekRow(
        workload=key.week if key.among == ALL else f"{key.week}-{key.among}",
        policy=key.variant.policy,
        scheme=key.variant.scheme,
        realtime_percent=key.percent,
        draw=key.draw,
        jobs=found.jobs,
        realtime_jobs=found.realtime_jobs,
        realtime_mean_bsd=of_realtime.mean,
        realtime_median_bsd=of_realtime.median,
        realtime_p95_bsd=of_realtime.p95,
        batch_mean_bsd=of_batch.mean,
        batch_median_bsd=of_batch.median,
        batch_p95_bsd=of_batch.p95,
        realtime_mean_turnaround=spreading(realtime[1]).mean,
        batch_mean_turnaround=spreading(batch[1]).mean,
        preemptions=found.preemptions,
        lost_cpu_hours=found.lost_cpu_hours,
        utilisation=found.utilisation,
        productive_utilisation=found.productive_utilisation,
    )


def draws_of(results: Results, week: str, variant: WeekVariant, percent: int, among: str = ALL) -> list[DrawResult]:
    """Those with the authors' settings, in order of the draw."""
    return [
        found
        for key, found in results.items()
        if (key.week, key.variant, key.percent, key.among) == (week, variant, percent, among)
        and key.setting == next(iter(SETTINGS))
    ]


def mean_of_draws(found: Sequence[DrawResult], realtime: bool, category: int | None = None) -> float:
    """The mean over draws of the mean bounded slowdown; over those that have such jobs."""
    means = [float(values.mean()) for one in found if len(values := pooled([one], realtime, category)[0])]
    return float(np.mean(means)) if means else float("nan")


def part_of_draws(found: Sequence[DrawResult], realtime: bool, part: float) -> float:
    """The mean over draws of a quantile of the bounded slowdown."""
    values = [pooled([one], realtime)[0] for one in found]
    return float(np.mean([np.quantile(one, part) for one in values if len(one)]))


def category_rows(results: Results) -> Iterator[CategoryRow]:
    groups = dict.fromkeys((key.week, key.variant, key.percent) for key in results if key.among == ALL)
    for week, variant, percent in groups:
        found = draws_of(results, week, variant, percent)
        for number, name in enumerate(CATEGORIES):
            for realtime, class_ in ((True, "realtime"), (False, "batch")):
                bsd = pooled(found, realtime, number)[0]
                of = spreading(bsd)
                yield CategoryRow(
                    week, variant.policy, variant.scheme, percent, name, class_,
                    len(bsd), of.mean, of.median, of.p5, of.p25, of.p75, of.p95,
                )  # fmt: skip


def setting_rows(results: Results) -> Iterator[SettingRow]:
    """Of weeks on which settings were swept."""
    swept = dict.fromkeys(key.week for key in results if key.setting != next(iter(SETTINGS)))
    for week in swept:
        for setting in SETTINGS:
            found = [
                one
                for key, one in results.items()
                if (key.week, key.variant, key.percent, key.among, key.setting) == (week, JIT, 10, ALL, setting)
            ]
            yield SettingRow(
                week,
                setting,
                mean_of_draws(found, True),
                part_of_draws(found, True, 0.95),
                mean_of_draws(found, False),
                part_of_draws(found, False, 0.95),
                float(np.mean([one.preemptions for one in found])),
            )


def weeks_in(results: Iterable[CaseKey]) -> list[str]:
    """Their names, in order."""
    return list(dict.fromkeys(key.week for key in results))
