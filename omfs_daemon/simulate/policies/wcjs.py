"""WCJS and its baselines (Nickolay et al. 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Ints
from omfs_daemon.policy.rules.slowdown_laws import threshold_crossing
from omfs_daemon.simulate.engine.checkpoint_scheme import PeriodicCheckpoints, checkpoint_costs, periodic_checkpoints
from omfs_daemon.simulate.engine.conventions import UserLimits, prepared
from omfs_daemon.simulate.engine.machine_units import units
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.place_stays import PlaceStays, segments_of
from omfs_daemon.simulate.engine.places import PlaceArrays, place_arrays
from omfs_daemon.simulate.engine.realtime_setting import categories, slowdown_limits
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.kernels.realtime.cheapest_place import Weights
from omfs_daemon.simulate.kernels.realtime.place_state import JOB
from omfs_daemon.simulate.kernels.realtime.wcjs_kernel import (
    ALIKE,
    CHEAPEST,
    CHEAPEST_BLOCKING,
    FIRST,
    Serving,
    wcjs_kernel,
)
from omfs_daemon.simulate.policies.run_predictor import learned_in, predicted_of
from omfs_daemon.simulate.workload.workload import PreemptMode


class PlaceCase(NamedTuple):
    """A scenario as the kernels see it: records of ``JOB``; the real-time jobs that will be due, in that order; the
    places; CPUs that each job holds while it runs."""

    jobs: Records
    crossings: Ints
    places: PlaceArrays
    held: Ints


def wfp(scenario: Scenario) -> Outcome:
    """Mira's own scheduling: jobs in order of a score, EASY backfilling; real-time jobs are nothing special."""
    return _served(scenario, "wfp", ALIKE)


def wfp_first(scenario: Scenario) -> Outcome:
    """The same, but nobody else starts while a real-time job waits (section 4.1)."""
    return _served(scenario, "wfp-first", FIRST)


def wcjs(scenario: Scenario) -> Outcome:
    """Real-time jobs that are due take the cheapest running jobs; the others are served at the same time, as the
    authors' code does."""
    return _served(scenario, "wcjs", CHEAPEST)


def wcjs_text(scenario: Scenario) -> Outcome:
    """The same, but nobody else starts while one is due, as the text says (Algorithm 1)."""
    return _served(scenario, "wcjs-text", CHEAPEST_BLOCKING)


def place_case(scenario: Scenario) -> PlaceCase:
    """Real-time jobs without a known limit are never due."""
    setting, workload = scenario.realtime, scenario.workload
    seen = prepared(workload, scenario.conventions)
    estimate = slowdown_limits(workload, scenario.conventions)
    costs = checkpoint_costs(workload.cpus, workload.memory, setting.memory_per_cpu, setting.shared_file_system)
    periodic = periodic_checkpoints(setting.scheme, estimate, costs.seconds, ~workload.realtime)
    places = place_arrays(setting.layout)
    machine = scenario.machine
    cpus = units(workload.cpus, machine) * (machine.cpus // machine.nodes) if machine.nodes else workload.cpus
    kind, held = _sizes(cpus, places)
    jobs = np.zeros(len(workload), dtype=JOB)
    for known in (seen, costs, periodic):
        for name in set(known._fields) & set(JOB.names or ()):
            jobs[name] = getattr(known, name)
    category, terms = categories(workload, scenario.conventions, scenario.machine.cpus, setting.sizes), setting.terms
    jobs["estimate"] = jobs["limit"] = estimate
    jobs["kind"], jobs["realtime"] = kind, workload.realtime
    never = workload.urgent | (workload.mode == PreemptMode.NEVER)
    jobs["victim_max"] = np.where(never, -np.inf, np.array(terms.victim_max)[category])
    jobs["cpus"], jobs["fits"] = cpus, cpus <= (setting.layout.widest or machine.cpus)
    jobs["act_at"] = jobs["at_most"] = jobs["predicted"] = np.inf
    if _learns_estimates(scenario):
        jobs["at_most"] = workload.limit
    acts = workload.realtime & _has_limit(scenario) & jobs["fits"]
    for job in np.flatnonzero(acts):
        jobs["act_at"][job] = threshold_crossing(seen.submit[job], estimate[job], terms.act_at[category[job]])
    due = np.flatnonzero(acts)
    return PlaceCase(jobs, due[np.argsort(jobs["act_at"][due], kind="stable")], places, held)


def stays_of(records: Records) -> PlaceStays:
    """From records of ``STAY``."""
    return PlaceStays(*(np.ascontiguousarray(records[name]) for name in PlaceStays._fields))


def _learns_estimates(scenario: Scenario) -> bool:
    conventions = scenario.conventions
    return conventions.learning is not None and not conventions.for_victims_only


def _has_limit(scenario: Scenario) -> Bools:
    """Of which jobs it is known: where time limits are believed, of those that have one."""
    limit = scenario.workload.limit
    conventions = scenario.conventions
    if isinstance(conventions.estimates, UserLimits) or conventions.learning is not None:
        known: Bools = np.isfinite(limit) & (limit > 0)
        return known
    return np.ones(len(limit), dtype=np.bool_)


def _sizes(cpus: Ints, places: PlaceArrays) -> tuple[Ints, Ints]:
    """The number of the smallest size that holds each job, and its CPUs; those of the job where there is none."""
    sizes = places.size[places.first_of[:-1]]
    if not len(sizes):
        return np.zeros(len(cpus), dtype=np.int64), cpus
    kind = np.searchsorted(sizes, cpus)
    held = np.where(kind < len(sizes), sizes[np.minimum(kind, len(sizes) - 1)], cpus)
    return kind.astype(np.int64), held.astype(np.int64)


def served(scenario: Scenario, order: int) -> tuple[PlaceCase, PlaceStays]:
    """What becomes of the jobs, and all their stays; ``order`` is one of the kernel's."""
    case, weights = place_case(scenario), scenario.realtime.terms.weights
    serving = Serving(
        scenario.machine.cpus,
        order,
        scenario.realtime.scheme.writes_when_stopped,
        Weights(float(weights.slowdown), float(weights.checkpoint), float(weights.remaining)),
        _learns_estimates(scenario),
    )
    crossings = case.crossings if order in (CHEAPEST, CHEAPEST_BLOCKING) else case.crossings[:0]
    return case, stays_of(wcjs_kernel(case.jobs, crossings, case.places, serving, learned_in(scenario)))


def _served(scenario: Scenario, name: str, order: int) -> Outcome:
    case, stays = served(scenario, order)
    outcome = outcome_on_places(scenario, name, case, stays)
    return replace(outcome, estimate=predicted_of(case.jobs, scenario))


def outcome_on_places(scenario: Scenario, name: str, case: PlaceCase, stays: PlaceStays) -> Outcome:
    """Of a policy of this name whose kernel has filled the jobs of the case."""
    jobs = case.jobs
    start, finish, stops, interval, most, seconds = (
        np.ascontiguousarray(jobs[column]) for column in ("start", "finish", "stops", "interval", "most", "seconds")
    )
    return Outcome(
        workload=scenario.workload,
        policy=name,
        machine=scenario.machine,
        conventions=scenario.conventions,
        start=start,
        finish=finish,
        run=np.ascontiguousarray(jobs["run"]),
        preemptions=stops,
        segments=segments_of(stays, PeriodicCheckpoints(interval, most), seconds),
        rejected=~jobs["fits"],
        promised=np.full(len(start), np.nan),
        held=case.held if len(case.places.size) else None,
        sizes=scenario.realtime.sizes,
    )
