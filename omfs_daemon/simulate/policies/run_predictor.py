"""The predictors that learn inside a simulation, by the names that users type."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.predict.ladder import LATEST, RUNGS
from omfs_daemon.predict.similar import SIMILAR_KINDS, SIMILAR_LATEST
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels import run_history as compiled
from omfs_daemon.simulate.kernels.compiling import Records
from omfs_daemon.simulate.workload.workload import Workload


class _Rule(NamedTuple):
    """kinds: the ways in which jobs are alike; latest: how many jobs of a kind are kept; unknown: see
    ``RunHistory``."""

    rule: int
    kinds: tuple[tuple[str, ...], ...]
    latest: int = 1
    weights: tuple[float, ...] = ()
    unknown: float = np.nan


_USER = ("user",)
_RULES = {
    "mean": _Rule(compiled.MEAN_OF_ALL, ((),)),
    "murata": _Rule(compiled.MEAN_OF_ALL, (("name",), ()), unknown=0.0),
    "last2": _Rule(compiled.MEAN_OF_LATEST, (_USER,), 2),
    "alike2": _Rule(compiled.MEAN_OF_LATEST, (("user", "cpus", "limit"), _USER), 2),
    "named2": _Rule(compiled.MEAN_OF_LATEST, (("user", "name"), _USER), 2),
    "ladder": _Rule(
        compiled.MEDIAN_OF_LATEST, (*(rung for rung in RUNGS if "partition" not in rung), ("limit",), ()), LATEST
    ),
    "similar": _Rule(
        compiled.MOST_ACCURATE,
        tuple(fields for fields, _ in SIMILAR_KINDS),
        SIMILAR_LATEST,
        tuple(weight for _, weight in SIMILAR_KINDS),
    ),
}
LEARNING = tuple(_RULES)


def nothing_learned(jobs: int) -> compiled.RunHistory:
    """For so many jobs whose estimates are given."""
    rule = _Rule(compiled.NOT_LEARNED, ())
    return _nothing_ended(rule, np.zeros((jobs, 0), dtype=np.int64), 0, np.full(jobs, np.inf))


def history_for(workload: Workload, name: str | None, chosen: Bools) -> compiled.RunHistory:
    """What is known before anything has ended of the chosen jobs; ``name`` None: nothing will be learned."""
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
    return _nothing_ended(rule, kinds, numbers, limit)


def learned_in(scenario: Scenario) -> compiled.RunHistory:
    """What is known before the simulation begins; all of its jobs may teach."""
    return history_for(
        scenario.workload, scenario.conventions.learning, np.ones(len(scenario.workload), dtype=np.bool_)
    )


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
        weights=np.array(rule.weights or [1.0] * len(rule.kinds), dtype=np.float64),
        latest=np.zeros((numbers, rule.latest)),
        total=np.zeros(numbers),
        number=np.zeros(numbers, dtype=np.int64),
        limit=limit,
        unknown=rule.unknown,
        runs=np.zeros(room),
        shares=np.zeros(room),
    )
