"""The predictors that learn inside a simulation, by the names that users type."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.predict.ladder import LATEST, RUNGS
from omfs_daemon.predict.run_inputs import GUESSED_BY, INPUTS, WAYS
from omfs_daemon.predict.similar import SIMILAR_KINDS, SIMILAR_LATEST
from omfs_daemon.simulate.engine.model_round import BY_MODEL, untrained
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels import run_history as compiled
from omfs_daemon.simulate.kernels.compiling import Records


class _Rule(NamedTuple):
    """kinds: the ways in which jobs are alike; latest: how many jobs of a kind are kept; guessed: numbers of ways, and
    their weights; medians, unknown: see ``RunHistory``."""

    rule: int
    kinds: tuple[tuple[str, ...], ...]
    latest: int = 1
    guessed: tuple[tuple[int, float], ...] = ()
    medians: int = 0
    unknown: float = np.nan


_USER = ("user",)
_RUNGS = (*(rung for rung in RUNGS if "partition" not in rung), ("limit",), ())
_RULES = {
    "mean": _Rule(compiled.MEAN_OF_ALL, ((),)),
    "murata": _Rule(compiled.MEAN_OF_ALL, (("name",), ()), unknown=0.0),
    "last2": _Rule(compiled.MEAN_OF_LATEST, (_USER,), 2),
    "alike2": _Rule(compiled.MEAN_OF_LATEST, (("user", "cpus", "limit"), _USER), 2),
    "named2": _Rule(compiled.MEAN_OF_LATEST, (("user", "name"), _USER), 2),
    "ladder": _Rule(compiled.MEDIAN_OF_LATEST, _RUNGS, LATEST, medians=len(_RUNGS)),
    "similar": _Rule(
        compiled.MOST_ACCURATE,
        tuple(fields for fields, _ in SIMILAR_KINDS),
        SIMILAR_LATEST,
        tuple(enumerate(weight for _, weight in SIMILAR_KINDS)),
    ),
    # Here there are no partitions.
    BY_MODEL: _Rule(
        compiled.BY_MODEL,
        tuple(tuple(field for field in way if field != "partition") for way in WAYS),
        LATEST,
        GUESSED_BY,
        medians=len(_RUNGS),
    ),
}
LEARNING = tuple(_RULES)


def nothing_learned(jobs: int) -> compiled.RunHistory:
    """For so many jobs whose estimates are given."""
    rule = _Rule(compiled.NOT_LEARNED, ())
    return _nothing_ended(rule, np.zeros((jobs, 0), dtype=np.int64), 0, np.full(jobs, np.inf))


def history_for(scenario: Scenario, chosen: Bools) -> compiled.RunHistory:
    """What is known before anything has ended of the chosen jobs."""
    workload, name = scenario.workload, scenario.conventions.learning
    if name is None:
        return nothing_learned(int(chosen.sum()))
    rule = _RULES[name]
    limit = np.ascontiguousarray(workload.limit[chosen], dtype=np.float64)
    columns = {"user": workload.user, "account": workload.account, "name": workload.job_name, "cpus": workload.cpus}
    # Equal limits have equal bits.
    known = {"limit": limit.view(np.int64), **{name: values[chosen] for name, values in columns.items()}}
    kinds, numbers = np.zeros((len(limit), len(rule.kinds)), dtype=np.int64), 0
    for way, fields in enumerate(rule.kinds):
        alike = np.array([known[field] for field in fields], dtype=np.int64).reshape(len(fields), len(limit))
        kinds[:, way] = compiled.numbered_kinds(alike, numbers)
        numbers = int(kinds[:, way].max(initial=numbers - 1)) + 1
    return _nothing_ended(rule, kinds, numbers, limit)._replace(model=_model_use(scenario, chosen))


def learned_in(scenario: Scenario) -> compiled.RunHistory:
    """What is known before the simulation begins; all of its jobs may teach."""
    return history_for(scenario, np.ones(len(scenario.workload), dtype=np.bool_))


def predicted_of(jobs: Records, scenario: Scenario) -> Floats | None:
    """What was predicted of each job when it came, nan of one that never ran; None where nothing is learned."""
    if scenario.conventions.learning is None:
        return None
    return np.where(np.isnan(jobs["start"]), np.nan, jobs["predicted"])


def _nothing_ended(rule: _Rule, kinds: Ints, numbers: int, limit: Floats) -> compiled.RunHistory:
    room = len(rule.kinds) * rule.latest
    return compiled.RunHistory(
        rule=rule.rule,
        kinds=kinds,
        guessed=np.array([way for way, _ in rule.guessed], dtype=np.int64),
        weights=np.array([weight for _, weight in rule.guessed], dtype=np.float64),
        medians=rule.medians,
        latest=np.zeros((numbers, rule.latest)),
        total=np.zeros(numbers),
        number=np.zeros(numbers, dtype=np.int64),
        limit=limit,
        unknown=rule.unknown,
        runs=np.zeros(room),
        shares=np.zeros(room),
        model=_NO_MODEL,
    )


def _model_use(scenario: Scenario, chosen: Bools) -> compiled.ModelUse:
    if scenario.conventions.learning != BY_MODEL:
        return _NO_MODEL
    now, workload = scenario.conventions.model or untrained(len(scenario.workload)), scenario.workload
    roots, feature, threshold, left, right, value, _ = now.trees
    trees = compiled.ModelTrees(np.ascontiguousarray(roots[0]), feature, threshold, left, right, value)
    cpus = np.ascontiguousarray(workload.cpus, dtype=np.int64)
    return compiled.ModelUse(trees, cpus, now.given, now.made, now.inputs, np.flatnonzero(chosen), now.coming)


def _no_model() -> compiled.ModelUse:
    none, no_ints = np.zeros(0), np.zeros(0, dtype=np.int64)
    trees = compiled.ModelTrees(no_ints, no_ints, none, no_ints, no_ints, none)
    return compiled.ModelUse(trees, no_ints, none, none, np.zeros((0, INPUTS)), no_ints, 0)


_NO_MODEL = _no_model()
