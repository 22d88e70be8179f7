"""Many settings of one workload: what is asked for more than once is crossed, each combination a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import polars as pl

from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.options import Asked
from omfs_daemon.simulate.options import Estimates
from omfs_daemon.simulate.options import setting_for
from omfs_daemon.simulate.results.result_rows import COLUMNS
from omfs_daemon.simulate.results.result_rows import Row
from omfs_daemon.simulate.results.result_rows import figures
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.policies.policy_table import Policy
from omfs_daemon.simulate.policies.policy_table import policy_named
from omfs_daemon.simulate.workload.source import Source
from omfs_daemon.simulate.workload.source import Sourced
from omfs_daemon.simulate.workload.source import sourced
from omfs_daemon.simulate.run_cases import Case
from omfs_daemon.simulate.assumptions import sentences

_MOST = 1000

# Takes the fraction of all workloads that has been read, 0 to 1.
Loading = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Axes:
    """The values to cross, in the order in which rows vary, the last fastest; one given twice counts once.

    procs, quantum  None: as :class:`Asked` has it
    load            of a generated workload; none: as the source has it
    """

    policy: tuple[str, ...]
    procs: tuple[int | None, ...] = (None,)
    estimates: tuple[Estimates, ...] = ("user",)
    quantum: tuple[float | None, ...] = (None,)
    latency: tuple[float, ...] = (0.0,)
    seed: tuple[int, ...] = (0,)
    load: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, tuple(dict.fromkeys(getattr(self, field.name))))


class Combination(NamedTuple):
    """One simulation as it is asked for."""

    policy: Policy
    asked: Asked
    source: Source


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a combination was simulated with, whoever decided it: the columns after those of an experiment.

    quantum, latency  seconds; None: the policy stops nobody
    load              offered load; None: a trace
    """

    procs: int
    estimates: Estimates
    quantum: float | None
    latency: float | None
    seed: int
    load: float | None


PARAMETERS = tuple(field.name for field in fields(Parameters))


class Planned(NamedTuple):
    """A combination ready to be simulated; ``told``: what its figures rest on, in sentences."""

    case: Case
    parameters: Parameters
    told: tuple[str, ...]


class Result(NamedTuple):
    """``refused``: jobs that the policy refused, which are in no mean."""

    row: Row
    refused: int


def combinations(axes: Axes, asked: Asked, source: Source) -> list[Combination]:
    """All combinations in order; ``asked`` and ``source`` say what is not crossed. ConfigError for a bad value, and for
    more than can be wanted."""
    policies = [policy_named(name) for name in axes.policy]
    if axes.load and source.generate is None:
        raise ConfigError("--load is only for --generate: a trace has the load that it has")
    for name in ("procs", "estimates", "quantum", "latency", "seed"):
        for value in getattr(axes, name):
            replace(asked, **{name: value})
    if max(axes.seed) > bounds.NUMBER:
        raise ConfigError(f"--seed = {max(axes.seed)}: must be {bounds.NUMBER:,} at most")
    crossed = [_crossed(policy, axes, source) for policy in policies]
    if (count := sum(prod(map(len, values)) for values in crossed)) > _MOST:
        raise ConfigError(f"{count:,} combinations: {_MOST:,} at most in one sweep")
    return [
        Combination(
            policy,
            replace(asked, procs=procs, estimates=estimates, quantum=quantum, latency=latency, seed=seed),
            replace(source, load=load),
        )
        for policy, values in zip(policies, crossed, strict=True)
        for procs, estimates, quantum, latency, seed, load in product(*values)
    ]


def planned(every: Sequence[Combination], loading: Loading) -> list[Planned]:
    """Read or generate each workload once, and make the settings; ConfigError."""
    workloads = _workloads(every, loading)
    return [_planned(one, workloads[_key(one)]) for one in every]


def result(outcome: Outcome) -> Result:
    """What a worker sends back."""
    return Result(figures(outcome).row, int(outcome.rejected.sum()))


def table(plans: Sequence[Planned], results: Sequence[Result]) -> pl.DataFrame:
    """A row a combination: the columns of an experiment, then the parameters; null where there is no figure."""
    rows = [asdict(got.row) | asdict(plan.parameters) for plan, got in zip(plans, results, strict=True)]
    made = pl.DataFrame({name: [row[name] for row in rows] for name in (*COLUMNS, *PARAMETERS)})
    return made.fill_nan(None)


def conventions(plans: Sequence[Planned], results: Sequence[Result]) -> tuple[str, ...]:
    """What all combinations rest on, then what those that stop jobs do; what differs stands in the columns."""
    everywhere = _common(plans)
    stopping = _common([plan for plan in plans if plan.parameters.quantum is not None])
    told = (*everywhere, *(f"where jobs are stopped: {text}" for text in stopping if text not in everywhere))
    refused = [got.refused for got in results if got.refused]
    if not refused:
        return told
    return (*told, f"jobs were refused, and are in no mean, in {len(refused):,} rows: up to {max(refused):,} in a row")


def _crossed(policy: Policy, axes: Axes, source: Source) -> tuple[tuple[Any, ...], ...]:
    """The values for a policy, from ``procs`` on; one that stops nobody does not go by quantum and latency."""
    stops = (axes.quantum, axes.latency) if policy.stops else ((None,), (0.0,))
    return (axes.procs, axes.estimates, *stops, axes.seed, axes.load or (source.load,))


def _key(one: Combination) -> tuple[object, ...]:
    """What decides the workload; nothing, if it is a trace."""
    return () if one.source.generate is None else (one.asked.procs, one.asked.seed, one.source.load)


def _workloads(every: Sequence[Combination], loading: Loading) -> dict[tuple[object, ...], Sourced]:
    needed = {_key(one): one for one in every}
    jobs = len(needed) * (every[0].source.generate or 0)
    if len(needed) > 1 and jobs > bounds.JOBS:
        raise ConfigError(
            f"{len(needed):,} generated workloads have {jobs:,} jobs: {bounds.JOBS:,} at most in one sweep"
        )
    found = {}
    for done, (key, one) in enumerate(needed.items()):
        tell = partial(_tell, loading, done, len(needed))
        found[key] = sourced(one.source, one.asked.procs, one.asked.seed, tell)
    return found


def _tell(loading: Loading, done: int, count: int, part: float) -> None:
    loading((done + part) / count)


def _planned(one: Combination, found: Sourced) -> Planned:
    setting, decided = setting_for(one.asked, found.workload, found.cpus)
    parameters = Parameters(
        procs=setting.machine.cpus,
        estimates=one.asked.estimates,
        quantum=float(setting.rules.quantum) if one.policy.stops else None,
        latency=setting.costs.latency if one.policy.stops else None,
        seed=setting.seed,
        load=None if one.source.generate is None else one.source.load,
    )
    values = ", ".join(f"{name} {value}" for name, value in asdict(parameters).items() if value is not None)
    case = Case(f"{found.workload.name} ({values})", one.policy.name, setting)
    return Planned(case, parameters, (*found.notes, *decided, *sentences(setting, one.policy)))


def _common(plans: Sequence[Planned]) -> tuple[str, ...]:
    """The sentences of the first that all have."""
    if not plans:
        return ()
    others = [set(plan.told) for plan in plans]
    return tuple(text for text in plans[0].told if all(text in told for told in others))
