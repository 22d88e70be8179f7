"""Many scenarios of one workload: repeated options are crossed, each combination is a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.assumptions import assumption_sentences
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.options import Estimates, SimulationOptions, conventions_for, scenario_for
from omfs_daemon.simulate.policies.policy_table import Policy, policy_named
from omfs_daemon.simulate.results.measure import measure
from omfs_daemon.simulate.results.result_rows import COLUMNS, ResultRow, figures
from omfs_daemon.simulate.run_cases import SweepCase
from omfs_daemon.simulate.workload.source import Source, Sourced, sourced

_MOST = 1000

# Takes the fraction of all workloads that has been read, 0 to 1.
Loading = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Axes:
    """The values to cross, in the order in which rows vary, the last fastest; one given twice counts once.

    procs, quantum  None: as :class:`SimulationOptions` has it
    load            of a generated workload; none: as the source has it
    realtime_share, scheme  as :class:`RealtimeOptions` has them
    """

    policy: tuple[str, ...]
    procs: tuple[int | None, ...] = (None,)
    estimates: tuple[Estimates, ...] = ("user",)
    quantum: tuple[float | None, ...] = (None,)
    latency: tuple[float, ...] = (0.0,)
    seed: tuple[int, ...] = (0,)
    load: tuple[float, ...] = ()
    realtime_share: tuple[float | None, ...] = (None,)
    scheme: tuple[str, ...] = ("jit",)

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, tuple(dict.fromkeys(getattr(self, field.name))))


class Combination(NamedTuple):
    """The options of one simulation."""

    policy: Policy
    options: SimulationOptions
    source: Source


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a combination was simulated with, given or default: the columns after those of an experiment.

    quantum, latency  seconds; None: the policy does not preempt
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
    """A combination ready to be simulated; ``sentences``: the assumptions of its figures."""

    case: SweepCase
    parameters: Parameters
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RealtimeColumns:
    """Columns after the parameters, in a table of which some row has real-time jobs; bsd: bounded slowdown.

    scheme      of checkpoints; None: the policy knows none
    bound_kept  share of the real-time jobs
    """

    scheme: str | None
    realtime_jobs: int
    realtime_mean_bsd: float
    realtime_p95_bsd: float
    batch_mean_bsd: float
    batch_p95_bsd: float
    bound_kept: float
    lost_cpu_hours: float
    productive_utilisation: float


REALTIME_COLUMNS = tuple(field.name for field in fields(RealtimeColumns))


class Result(NamedTuple):
    """``refused``: jobs that the policy refused, which are in no mean; ``realtime``: None without such jobs."""

    row: ResultRow
    refused: int
    realtime: RealtimeColumns | None = None


def combinations(axes: Axes, options: SimulationOptions, source: Source) -> list[Combination]:
    """All combinations in order; ``options`` and ``source`` hold what is not crossed.

    ConfigError for a bad value, and for too many combinations.
    """
    policies = [policy_named(name) for name in axes.policy]
    if axes.load and source.generate is None:
        raise ConfigError("--load is only for --generate: a trace has the load that it has")
    for name in ("procs", "estimates", "quantum", "latency", "seed"):
        for value in getattr(axes, name):
            replace(options, **{name: value})
    for name in ("realtime_share", "scheme"):
        for value in getattr(axes, name):
            replace(options.realtime, **{name: value})
    if max(axes.seed) > bounds.NUMBER:
        raise ConfigError(f"--seed = {max(axes.seed)}: must be {bounds.NUMBER:,} at most")
    for policy, estimates in product(policies, axes.estimates):
        policy.require_learning(conventions_for(replace(options, estimates=estimates)))
    crossed = [_crossed(policy, axes, source) for policy in policies]
    if (count := sum(prod(map(len, values)) for values in crossed)) > _MOST:
        raise ConfigError(f"{count:,} combinations: {_MOST:,} at most in one sweep")
    return [
        Combination(
            policy,
            replace(
                options,
                procs=procs,
                estimates=estimates,
                quantum=quantum,
                latency=latency,
                seed=seed,
                realtime=replace(options.realtime, realtime_share=share, scheme=scheme),
            ),
            replace(source, load=load),
        )
        for policy, values in zip(policies, crossed, strict=True)
        for procs, estimates, quantum, latency, seed, load, share, scheme in product(*values)
    ]


def planned(every: Sequence[Combination], loading: Loading) -> list[Planned]:
    """Read or generate each workload once, and make the scenarios; ConfigError."""
    workloads = _workloads(every, loading)
    return [_planned(one, workloads[_key(one)]) for one in every]


def sweep_result(outcome: Outcome) -> Result:
    """What a worker sends back."""
    row, refused = figures(outcome).row, int(outcome.rejected.sum())
    measures = measure(outcome, AccountTree(()))
    found = measures.realtime
    if found is None:
        return Result(row, refused)
    realtime, batch = found.realtime.bounded_slowdown, found.batch.bounded_slowdown
    return Result(
        row,
        refused,
        RealtimeColumns(
            scheme=None,
            realtime_jobs=found.realtime.jobs,
            realtime_mean_bsd=realtime.mean,
            realtime_p95_bsd=realtime.p95,
            batch_mean_bsd=batch.mean,
            batch_p95_bsd=batch.p95,
            bound_kept=found.bound_kept,
            lost_cpu_hours=measures.lost_cpu_hours,
            productive_utilisation=measures.productive_utilisation,
        ),
    )


def sweep_table(plans: Sequence[Planned], results: Sequence[Result]) -> pl.DataFrame:
    """One row per combination: the columns of an experiment, then the parameters; null where there is no figure."""
    rows = [asdict(result.row) | asdict(plan.parameters) for plan, result in zip(plans, results, strict=True)]
    names = (*COLUMNS, *PARAMETERS)
    if any(result.realtime for result in results):
        rows = [row | _realtime_cells(plan, result) for row, plan, result in zip(rows, plans, results, strict=True)]
        names = (*names, *REALTIME_COLUMNS)
    made = pl.DataFrame({name: [row[name] for row in rows] for name in names})
    return made.fill_nan(None)


def _realtime_cells(plan: Planned, result: Result) -> dict[str, Any]:
    if result.realtime is None:
        return dict.fromkeys(REALTIME_COLUMNS)
    on_places = policy_named(plan.case.policy).on_places
    scheme = plan.case.scenario.realtime.scheme.name if on_places else None
    return asdict(replace(result.realtime, scheme=scheme))


def sweep_conventions(plans: Sequence[Planned], results: Sequence[Result]) -> tuple[str, ...]:
    """What all combinations rest on, then what those with preemption do; the columns show what differs."""
    everywhere = _common(plans)
    preempting = _common([plan for plan in plans if plan.parameters.quantum is not None])
    sentences = (*everywhere, *(f"where jobs are preempted: {text}" for text in preempting if text not in everywhere))
    refused = [result.refused for result in results if result.refused]
    if not refused:
        return sentences
    return (
        *sentences,
        f"jobs were refused, and are in no mean, in {len(refused):,} rows: up to {max(refused):,} in a row",
    )


def _crossed(policy: Policy, axes: Axes, source: Source) -> tuple[tuple[Any, ...], ...]:
    """The values for a policy, from ``procs`` on; one without preemption ignores quantum and latency, one
    without places the scheme."""
    preemptions = (axes.quantum, axes.latency) if policy.has_quantum else ((None,), (0.0,))
    schemes = axes.scheme if policy.on_places else ("jit",)
    return (
        axes.procs,
        axes.estimates,
        *preemptions,
        axes.seed,
        axes.load or (source.load,),
        axes.realtime_share,
        schemes,
    )


def _key(one: Combination) -> tuple[object, ...]:
    """What decides the workload; nothing, if it is a trace."""
    return () if one.source.generate is None else (one.options.procs, one.options.seed, one.source.load)


def _workloads(every: Sequence[Combination], loading: Loading) -> dict[tuple[object, ...], Sourced]:
    needed = {_key(one): one for one in every}
    jobs = len(needed) * (every[0].source.generate or 0)
    if len(needed) > 1 and jobs > bounds.JOBS:
        raise ConfigError(
            f"{len(needed):,} generated workloads have {jobs:,} jobs: {bounds.JOBS:,} at most in one sweep"
        )
    found = {}
    for done, (key, one) in enumerate(needed.items()):
        report = partial(_report_fraction, loading, done, len(needed))
        found[key] = sourced(one.source, one.options.procs, one.options.seed, report)
    return found


def _report_fraction(loading: Loading, done: int, count: int, part: float) -> None:
    loading((done + part) / count)


def _planned(one: Combination, found: Sourced) -> Planned:
    scenario, decided = scenario_for(one.options, found.workload, found.cpus)
    parameters = Parameters(
        procs=scenario.machine.cpus,
        estimates=one.options.estimates,
        quantum=float(scenario.rules.quantum) if one.policy.has_quantum else None,
        latency=scenario.costs.latency if one.policy.has_quantum else None,
        seed=scenario.seed,
        load=None if one.source.generate is None else one.source.load,
    )
    values = ", ".join(f"{name} {value}" for name, value in asdict(parameters).items() if value is not None)
    case = SweepCase(f"{found.workload.name} ({values})", one.policy.name, scenario)
    return Planned(case, parameters, (*found.notes, *decided, *assumption_sentences(scenario, one.policy)))


def _common(plans: Sequence[Planned]) -> tuple[str, ...]:
    """The sentences of the first that all have."""
    if not plans:
        return ()
    others = [set(plan.sentences) for plan in plans]
    return tuple(text for text in plans[0].sentences if all(text in sentences for sentences in others))
