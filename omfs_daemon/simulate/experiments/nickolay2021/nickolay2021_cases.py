"""Which simulations there are, and what is kept of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT, BYTES_PER_CPU
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.policy.rules.realtime_terms import CostWeights, RealtimeTerms
from omfs_daemon.simulate.engine.checkpoint_scheme import scheme_named
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.outcome import Outcome, Use
from omfs_daemon.simulate.engine.places import MIRA_CPUS, layout_named
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.engine.scenario import Machine, Scenario
from omfs_daemon.simulate.experiments.nickolay2021.mira_weeks import StudyWeek, with_beamline_jobs
from omfs_daemon.simulate.realtime_options import drawn_realtime
from omfs_daemon.simulate.results.measure import per_job
from omfs_daemon.simulate.results.realtime_figures import outcome_categories
from omfs_daemon.simulate.results.timeline import held_units
from omfs_daemon.simulate.run_cases import SweepCase
from omfs_daemon.simulate.workload.workload import Workload

BOUND_SECONDS = 600.0
"""Run times below 10 minutes count as that in a bounded slowdown (section 3.2)."""
PERCENTAGES = (5, 10, 15, 20)
FIRST_SEED = 1000
ALL, SHORT, BEAMLINE = "all", "90min", "aps"
"""Which jobs may be real-time (section 7.1.3)."""
_SHORT_SECONDS = 5400.0
_CURIE_TERMS = RealtimeTerms(act_at=(1.1, 1.1, 2.0, 2.0), victim_max=(1.5, 3.21, 13.5, 6.02))
_MIRA_TERMS = RealtimeTerms(act_at=ACT_AT)


class WeekVariant(NamedTuple):
    """A policy under a scheme, and what it is called on the page."""

    policy: str
    scheme: str
    title: str


BASELINE = WeekVariant("wfp", "none", "baseline")
JIT = WeekVariant("wcjs", "jit", "JIT")
APP_5 = WeekVariant("wcjs", "app:5", "APP-5")
APP_10 = WeekVariant("wcjs", "app:10", "APP-10")
TEXT = WeekVariant("wcjs-text", "jit", "JIT, low queue blocked")
COMPARED = (BASELINE, JIT, APP_5, APP_10)
"""What the paper's figures show."""
REPLAN = WeekVariant("realtime-replan", "jit", "replan")
REPLAN_PERCENT = 10
BESIDE = (
    WeekVariant("wfp-first", "none", "real-time first"),
    TEXT,
    WeekVariant("wcjs", "sys:3600", "SYS, hourly"),
    WeekVariant("wcjs", "none", "no checkpoints"),
    REPLAN,
)
"""What is measured besides."""

SETTINGS: Mapping[str, RealtimeTerms] = {
    "as the authors": _MIRA_TERMS,
    "cost without slowdown": replace(_MIRA_TERMS, weights=CostWeights(slowdown=0)),
    "cost without checkpoint": replace(_MIRA_TERMS, weights=CostWeights(checkpoint=0)),
    "cost without remaining": replace(_MIRA_TERMS, weights=CostWeights(remaining=0)),
    "cost of nodes alone": replace(_MIRA_TERMS, weights=CostWeights(0, 0, 0)),
    "each factor squared": replace(_MIRA_TERMS, weights=CostWeights(2, 2, 2)),
    "due from 1.0": replace(_MIRA_TERMS, act_at=(1.0,) * 4),
    "due from 1.05": replace(_MIRA_TERMS, act_at=(1.05,) * 4),
    "due from 1.1": replace(_MIRA_TERMS, act_at=(1.1,) * 4),
    "due from 1.3": replace(_MIRA_TERMS, act_at=(1.3,) * 4),
    "due from 2": replace(_MIRA_TERMS, act_at=(2.0,) * 4),
    "victims up to 1.2": replace(_MIRA_TERMS, victim_max=(1.2,) * 4),
    "victims up to 2": replace(_MIRA_TERMS, victim_max=(2.0,) * 4),
    "victims up to 5": replace(_MIRA_TERMS, victim_max=(5.0,) * 4),
    "victims without a limit": replace(_MIRA_TERMS, victim_max=(1e9,) * 4),
}
"""Which setting matters: one is changed at a time, with 10 % real-time jobs and JIT."""


@dataclass(frozen=True, slots=True)
class CaseKey:
    """``among``: which jobs may be real-time; ``setting``: of the cost and the thresholds."""

    week: str
    variant: WeekVariant
    percent: int
    draw: int
    among: str = ALL
    setting: str = "as the authors"


@dataclass(frozen=True, slots=True)
class DrawResult:
    """The jobs of a week that were done, one entry each, and sums over the week.

    bsd, turnaround  bounded slowdown; seconds from submission to end
    preemptions      of these jobs; jobs: in the whole log, realtime_jobs: of them
    """

    bsd: Floats
    turnaround: Floats
    realtime: Bools
    category: Ints
    jobs: int
    realtime_jobs: int
    preemptions: int
    lost_cpu_hours: float
    utilisation: float
    productive_utilisation: float


class CaseOfWeek(NamedTuple):
    key: CaseKey
    case: SweepCase


def week_cases(week: StudyWeek, draws: int) -> Iterator[CaseOfWeek]:
    """Every simulation of one week."""
    count = min(draws, week.draws or draws)
    for percent in PERCENTAGES:
        for draw in range(count):
            for variant in (*COMPARED, *BESIDE):
                if variant != REPLAN or is_replanned(week, percent):
                    yield _case(week, CaseKey(week.jobs.name, variant, percent, draw))
    for draw in range(count):
        for among in (SHORT, BEAMLINE):
            for variant in COMPARED:
                yield _case(week, CaseKey(week.jobs.name, variant, 10, draw, among))
    if not week.curie:
        for draw in range(count):
            for setting in list(SETTINGS)[1:]:
                yield _case(week, CaseKey(week.jobs.name, JIT, 10, draw, ALL, setting))


def is_replanned(week: StudyWeek, percent: int) -> bool:
    """A search at each event takes hundreds of times as long as WCJS, and longer with Curie's queues of thousands."""
    return percent == REPLAN_PERCENT and not week.curie


def week_scenario(week: StudyWeek, key: CaseKey) -> Scenario:
    """Jobs run past their limits, as they did on Mira; a checkpoint has the whole file system for itself."""
    terms = _CURIE_TERMS if week.curie else SETTINGS[key.setting]
    setting = RealtimeSetting(
        layout=layout_named("mira", MIRA_CPUS),
        scheme=scheme_named(key.variant.scheme),
        shared_file_system=False,
        memory_per_cpu=BYTES_PER_CPU,
        terms=terms,
    )
    jobs = _with_realtime(week.jobs, key)
    jobs = replace(jobs, memory=np.zeros(len(jobs)))  # as on Mira, whatever Curie's jobs used
    conventions = Conventions(UserLimits(), kill=False, bound=BOUND_SECONDS)
    return Scenario(jobs, Machine(MIRA_CPUS), conventions, realtime=setting)


def measured_week(outcome: Outcome, windows: Mapping[str, tuple[float, float]]) -> DrawResult:
    """What a worker sends back; ``windows``: begin and end of what counts, by workload."""
    jobs = outcome.workload
    begin, end = windows[jobs.name]
    counted = (jobs.submit >= begin) & (jobs.submit < end) & ~np.isnan(outcome.finish)
    waits, segments = per_job(outcome)[:, counted], outcome.segments
    seconds = np.maximum(np.minimum(segments.end, end) - np.maximum(segments.begin, begin), 0.0)
    held = np.bincount(segments.use, weights=seconds * held_units(outcome)[segments.job], minlength=len(Use))
    offered = outcome.machine.cpus * (end - begin)
    return DrawResult(
        bsd=waits[3],
        turnaround=waits[1],
        realtime=jobs.realtime[counted],
        category=outcome_categories(outcome)[counted],
        jobs=len(jobs),
        realtime_jobs=int(jobs.realtime.sum()),
        preemptions=int(outcome.preemptions[counted].sum()),
        lost_cpu_hours=float(held[Use.LOST] / HOUR),
        utilisation=float(held.sum() / offered),
        productive_utilisation=float(held[Use.WORK] / offered),
    )


def _case(week: StudyWeek, key: CaseKey) -> CaseOfWeek:
    name = f"{key.week}, {key.variant.title}, {key.percent} % {key.among}, draw {key.draw}, {key.setting}"
    return CaseOfWeek(key, SweepCase(name, key.variant.policy, week_scenario(week, key)))


def _with_realtime(jobs: Workload, key: CaseKey) -> Workload:
    seed, share = FIRST_SEED + key.draw, key.percent / 100
    if key.among == BEAMLINE:
        return with_beamline_jobs(jobs, share, seed)
    among = np.flatnonzero(jobs.run < (_SHORT_SECONDS if key.among == SHORT else np.inf))
    return replace(jobs, realtime=drawn_realtime(among, share, len(jobs), seed))


def pooled(results: Sequence[DrawResult], realtime: bool, category: int | None = None) -> tuple[Floats, Floats]:
    """Bounded slowdowns and turnarounds of all draws together, of one category or of all."""

    def chosen(result: DrawResult) -> Bools:
        mask: Bools = result.realtime == realtime
        return mask if category is None else mask & (result.category == category)

    return (
        np.concatenate([result.bsd[chosen(result)] for result in results]),
        np.concatenate([result.turnaround[chosen(result)] for result in results]),
    )
