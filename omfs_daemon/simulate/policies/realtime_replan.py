"""A plan that is made anew at each event, of which only what starts or is preempted now is carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.replan.plan_problem import PlanPlaces, PlanProblem, PlanTerms
from omfs_daemon.policy.replan.plan_search import FoundPlan, SearchLimits
from omfs_daemon.simulate.engine.learned_runs import LearnedRuns
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.place_stays import PlaceStays
from omfs_daemon.simulate.engine.places import PlaceArrays
from omfs_daemon.simulate.engine.replan_engine import Replanning, ReplanStay, Search
from omfs_daemon.simulate.engine.replan_problem import PlacedJobs, PlacedMachine, PlacedState, PlanRules
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.realtime.place_state import JOB, NOBODY
from omfs_daemon.simulate.kernels.replan_kernel import search_plan
from omfs_daemon.simulate.kernels.running import corrected
from omfs_daemon.simulate.policies.wcjs import PlaceCase, outcome_on_places, place_case

NAME, REALTIME_ONLY_NAME = "realtime-replan", "realtime-replan-only"
_TERMS = PlanTerms()
_FOR_REALTIME_ONLY = PlanTerms(realtime_weight=1.5, penalty=2.0, realtime_only=True)
"""Batch jobs have less that helps them, so being above the margin costs less; chosen on small logs 0 to 19."""
_LARGEST_SEED = 2**31 - 3


class Replanned(NamedTuple):
    """An outcome, and how long each search for a plan took, by the clock that was given."""

    outcome: Outcome
    seconds: Floats


def realtime_replan(scenario: Scenario) -> Outcome:
    """Batch jobs are preempted where that pays."""
    return _simulated(scenario, False, search_plan)


def realtime_replan_only(scenario: Scenario) -> Outcome:
    """They are preempted for real-time jobs only."""
    return _simulated(scenario, True, search_plan)


def timed_replan(scenario: Scenario, realtime_only: bool, clock: Callable[[], float]) -> Replanned:
    """Either of them; ``clock``: seconds."""
    seconds = []

    def timed(problem: PlanProblem, last: Floats, limits: SearchLimits) -> FoundPlan:
        begin = clock()
        found = search_plan(problem, last, limits)
        seconds.append(clock() - begin)
        return found

    outcome = _simulated(scenario, realtime_only, timed)
    return Replanned(outcome, np.array(seconds))


def plan_places(places: PlaceArrays) -> PlanPlaces:
    """The places as a plan sees them."""
    units = [
        frozenset(places.units[begin:end].tolist())
        for begin, end in zip(places.units_from[:-1], places.units_from[1:], strict=True)
    ]
    shared = [[other for other in range(len(units)) if units[other] & own] for own in units]
    return PlanPlaces(
        places.size[places.first_of[:-1]].astype(np.float64),
        places.first_of,
        np.concatenate(([0], np.cumsum([len(others) for others in shared]))).astype(np.int64),
        np.array([other for others in shared for other in others], dtype=np.int64),
    )


def _simulated(scenario: Scenario, realtime_only: bool, search: Search) -> Outcome:
    name = REALTIME_ONLY_NAME if realtime_only else NAME
    case = place_case(scenario)
    fits = np.flatnonzero(case.jobs["fits"])
    machine = placed_machine(scenario, case, realtime_only)
    conventions, limits = scenario.conventions, SearchLimits(seed=1 + scenario.seed % _LARGEST_SEED)
    learned = None if conventions.learning is None else LearnedRuns(scenario.workload, conventions.learning, fits)
    run = Replanning(machine, search, limits, learned, conventions.for_victims_only).run()
    known = {name: np.array([getattr(stay, name) for stay in run]) for name in ReplanStay._fields}
    known["job"] = fits[known["job"].astype(np.int64)]
    stays = PlaceStays(**known, preemptor=np.full(len(run), NOBODY), cost=np.zeros(len(run)))
    _note_ends(case.jobs, stays)
    outcome = outcome_on_places(scenario, name, case, stays)
    if learned is None:
        return outcome
    estimate = np.full(len(case.jobs), np.nan)
    estimate[fits] = learned.seconds
    return replace(outcome, estimate=estimate)


def placed_machine(scenario: Scenario, case: PlaceCase, realtime_only: bool) -> PlacedMachine:
    """With those of its jobs that fit on a place; ConfigError if nothing can be planned on it."""
    name = REALTIME_ONLY_NAME if realtime_only else NAME
    setting = scenario.realtime
    if not setting.layout.places:
        raise ConfigError(f"--policy {name}: jobs are planned on places: --layout aligned:UNIT or mira, or --places")
    if setting.scheme.kind not in ("jit", "none"):
        raise ConfigError(f"--policy {name}: --scheme {setting.scheme.name} is not planned: jit or none")
    jobs = case.jobs[case.jobs["fits"]]
    return PlacedMachine(
        PlacedJobs(
            **{name: np.ascontiguousarray(jobs[name]) for name in PlacedJobs._fields if name in (JOB.names or ())},
            length=np.array(jobs["estimate"]),
        ),
        PlacedState.at_begin(len(jobs)),
        plan_places(case.places),
        PlanRules(
            _FOR_REALTIME_ONLY if realtime_only else _TERMS, setting.scheme.writes_when_stopped, setting.terms.weights
        ),
        corrected,
    )


def _note_ends(jobs: Records, stays: PlaceStays) -> None:
    """First starts, last ends, and how often each job was preempted."""
    jobs["start"], jobs["finish"], jobs["stops"] = np.nan, np.nan, -1
    for stay in np.argsort(stays.begin, kind="stable"):
        job = jobs[stays.job[stay]]
        if np.isnan(job["start"]):
            job["start"] = stays.begin[stay]
        job["finish"] = stays.end[stay]
        job["stops"] += 1
    jobs["stops"] = np.maximum(jobs["stops"], 0)
