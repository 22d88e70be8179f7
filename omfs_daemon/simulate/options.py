"""From options, as text and numbers, to the scenario of a simulation; for every command that simulates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.cluster.accounts import AccountTree, Entitlement
from omfs_daemon.config.build import rules
from omfs_daemon.config.load import load
from omfs_daemon.config.percent import percent
from omfs_daemon.config.schema import Config
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.predict.gbm_training import require_lightgbm
from omfs_daemon.simulate.engine.conventions import Conventions, GivenEstimates, UserLimits
from omfs_daemon.simulate.engine.model_round import BY_MODEL
from omfs_daemon.simulate.engine.preemption_costs import BY_SIZE, CostModel, Link, Spread
from omfs_daemon.simulate.engine.scenario import Machine, Scenario, owners
from omfs_daemon.simulate.policies.run_predictor import LEARNING
from omfs_daemon.simulate.realtime_options import (
    RealtimeOptions,
    realtime_notes,
    realtime_setting,
    with_realtime_jobs,
)
from omfs_daemon.simulate.workload.estimate_file import read_estimates
from omfs_daemon.simulate.workload.workload import Workload

_NAMED = 6
ALL, VICTIMS = "all", "victims"
"""What predictions are for."""

Estimates = str
"""``user``, ``exact``, a predictor that learns in the simulation, or a file that ends in .csv."""

# UJFB, Table 3: 5.1 GB in 0.84 s, for each engine by itself.
_SWAP = Link(each=6e9)
# Mira's file system (WCJS): 4 GB/s for 128 nodes, 216 GB/s in all.
_FILE_SYSTEM = Link(each=4e9 / 128, together=216e9)


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How to simulate, as typed; the names are those of the options.

    procs         CPUs of the machine; None: what the trace's header says
    nodes         0: a flat counter of CPUs
    estimates_for  whether predictions are for all that a policy decides, or for the order of victims alone
    swap_out, swap_in  ``LO:HI`` in seconds, or ``SECONDS+bytes/RATE`` as ``omfs methods fit`` prints it; None: by size,
                  at the speed that the paper measured
    checkpoint_out, checkpoint_in  the same of checkpoints
    entitlement   ``NAME=PERCENT`` each; none: those of ``config``, else equal shares
    config        a daemon's configuration, for entitlements, quantum and limits
    quantum       seconds; None: that of ``config``
    strict        whether jobs that a file of estimates lacks, or has too many, are an error
    """

    procs: int | None = None
    nodes: int = 0
    estimates: Estimates = "user"
    estimates_for: str = ALL
    kill: bool = True
    bound: float = 10.0
    latency: float = 0.0
    swap_out: str | None = None
    swap_in: str | None = None
    checkpoint_out: str | None = None
    checkpoint_in: str | None = None
    entitlement: tuple[str, ...] = ()
    config: Path | None = None
    quantum: float | None = None
    seed: int = 0
    realtime: RealtimeOptions = RealtimeOptions()  # noqa: RUF009 - frozen
    strict: bool = False

    def __post_init__(self) -> None:
        """Errors that do not depend on the workload are reported before it is loaded."""
        conventions_for(self)
        costs_for(self)
        _entitlements(self.entitlement)
        if self.procs is not None:
            Machine(self.procs)
        if self.quantum is not None:
            _seconds("--quantum", self.quantum)
        if self.seed < 0:
            raise ConfigError(f"--seed = {self.seed}: must be 0 or more")


class ScenarioAndNotes(NamedTuple):
    """``notes``: the defaults that were chosen, in sentences."""

    scenario: Scenario
    notes: tuple[str, ...]


def scenario_for(options: SimulationOptions, workload: Workload, header_cpus: int | None) -> ScenarioAndNotes:
    """The scenario for a workload whose header names so many CPUs (None: it names none); ConfigError."""
    machine, notes = machine_for(options, header_cpus)
    rules, whose = rules_for(options, workload)
    setting = realtime_setting(options.realtime, machine)
    jobs = with_realtime_jobs(workload, options.realtime, options.seed)
    conventions = conventions_for(options)
    if _is_file(options.estimates):
        limits = UserLimits().estimates(jobs)
        seconds, of_file = read_estimates(Path(options.estimates), jobs, limits, options.strict)
        conventions = replace(conventions, estimates=GivenEstimates(options.estimates, seconds))
        notes = (*notes, *of_file)
    scenario = Scenario(jobs, machine, conventions, costs_for(options), rules, options.seed, setting)
    return ScenarioAndNotes(scenario, (*notes, whose, *_without_jobs(rules.tree, jobs), *realtime_notes(jobs)))


def machine_for(options: SimulationOptions, header_cpus: int | None) -> tuple[Machine, tuple[str, ...]]:
    """The machine, and a sentence if its size is the header's."""
    cpus = options.procs if options.procs is not None else header_cpus
    if cpus is None:
        raise ConfigError("--procs is needed: the workload does not say how many CPUs the machine has")
    machine = Machine(cpus, options.nodes)
    if not 0 <= options.nodes <= min(cpus, bounds.NODES) or (options.nodes and cpus % options.nodes):
        allowed = f"must divide the {cpus} CPUs into equal nodes, {bounds.NODES:,} at most (0: no nodes)"
        raise ConfigError(f"--nodes = {options.nodes}: {allowed}")
    notes = () if options.procs is not None else (f"--procs not given: {cpus:,} CPUs, as the trace's header says",)
    return machine, notes


def conventions_for(options: SimulationOptions) -> Conventions:
    bound = bound_checked(options.bound)
    learning = options.estimates if estimates_named(options.estimates) in LEARNING else None
    if options.estimates_for not in (ALL, VICTIMS):
        raise ConfigError(f"--estimates-for = {options.estimates_for!r}: must be {ALL} or {VICTIMS}")
    only = options.estimates_for == VICTIMS
    if only and learning is None:
        raise ConfigError(f"--estimates-for {VICTIMS}: needs --estimates that are learned: {', '.join(LEARNING)}")
    given = UserLimits() if options.estimates == "user" else None
    return Conventions(given, options.kill, bound, learning, only)


def bound_checked(bound: float) -> float:
    """Seconds, of the bounded slowdown; ConfigError."""
    if not 0 < bound <= bounds.SECONDS:
        raise ConfigError(f"--bound = {bound:g}: must be seconds above 0, {bounds.SECONDS:,} at most")
    return bound


def costs_for(options: SimulationOptions) -> CostModel:
    return CostModel(
        latency=_seconds("--latency", options.latency),
        write=_cost("--checkpoint-out", options.checkpoint_out, _FILE_SYSTEM),
        read=_cost("--checkpoint-in", options.checkpoint_in, _FILE_SYSTEM),
        swap_out=_cost("--swap-out", options.swap_out, _SWAP),
        swap_in=_cost("--swap-in", options.swap_in, _SWAP),
    )


def rules_for(options: SimulationOptions, workload: Workload) -> tuple[Rules, str]:
    """Entitlements, quantum and limits, and a sentence on the source of the entitlements."""
    loaded = load(options.config) if options.config else Config()
    entitlements, whose = loaded.all_entitlements, f"entitlements of {options.config}"
    if options.entitlement:
        entitlements, whose = _entitlements(options.entitlement), "entitlements as asked for"
    if not entitlements:
        entitlements = equal_entitlements(workload)
        whose = f"no entitlements given: equal shares for the accounts that have regular jobs ({len(entitlements)})"
    if options.quantum is not None:
        section = loaded.policy.model_copy(update={"quantum_seconds": options.quantum})
        loaded = loaded.model_copy(update={"policy": section})
    return rules(loaded, entitlements), whose


def site_rules(path: Path | None) -> Rules | None:
    """The rules of a daemon's configuration; its classes define urgent jobs and how each job can be preempted."""
    if path is None:
        return None
    loaded = load(path)
    return rules(loaded, loaded.all_entitlements)


def estimates_named(name: str) -> Estimates:
    """The name as it is; ConfigError for one that is not known."""
    if name not in ("user", "exact", *LEARNING) and not _is_file(name):
        known = ", ".join(("user", "exact", *LEARNING))
        raise ConfigError(f"--estimates = {name!r}: must be one of {known}, or a file that ends in .csv")
    if name == BY_MODEL:
        require_lightgbm()
    return name


def _is_file(estimates: Estimates) -> bool:
    return estimates.endswith(".csv")


def equal_entitlements(workload: Workload) -> tuple[Entitlement, ...]:
    """The whole machine, in equal parts for the accounts that have regular jobs."""
    present = [workload.accounts[index] for index in np.unique(workload.account[~workload.urgent]).tolist()]
    return tuple(Entitlement(name, Fraction(100, len(present))) for name in present)


def _without_jobs(tree: AccountTree, workload: Workload) -> tuple[str, ...]:
    """A sentence that names the accounts that own a share and that no job counts under: they may be mistakes."""
    named, used = {entitlement.name for entitlement in tree.entitlements}, set(owners(workload, tree).tolist())
    leaves = (entity for entity in tree.entities if entity.is_leaf and entity.name in named)
    idle = [leaf.name for leaf in leaves if leaf.index not in used]
    more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
    return (f"accounts with an entitlement and without jobs: {', '.join(idle[:_NAMED])}{more}",) if idle else ()


def _entitlements(texts: Iterable[str]) -> tuple[Entitlement, ...]:
    """``NAME=PERCENT`` each; ConfigError for anything else, and if they do not go together."""
    entitlements = tuple(_share(text) for text in texts)
    try:
        AccountTree(entitlements)
    except ConfigError as error:
        raise ConfigError(f"--entitlement: {error}") from None
    return entitlements


def _share(text: str) -> Entitlement:
    name, equals, amount = text.rpartition("=")
    try:
        if not equals or not name.strip():
            raise ValueError("must be NAME=PERCENT")
        return Entitlement(name.strip(), percent(amount))
    except ValueError as error:
        raise ConfigError(f"--entitlement = {text!r}: {error}") from None


def _cost(option: str, text: str | None, otherwise: Link) -> Link | Spread:
    """``LO:HI`` (seconds, drawn) or ``SECONDS+bytes/RATE``, seconds from 0 on; ConfigError for anything else."""
    if text is None:
        return otherwise
    is_by_size = BY_SIZE in text
    first_text, _, second_text = text.partition(BY_SIZE if is_by_size else ":")
    try:
        first, second = float(first_text), float(second_text)
    except ValueError:
        first = second = -1.0
    if is_by_size and 0 <= first <= bounds.SECONDS and second > 0:
        return Link(job=second, fixed=first)
    if is_by_size or not 0 <= first <= second <= bounds.SECONDS:
        allowed = f"must be LO:HI in seconds, 0 <= LO <= HI <= {bounds.SECONDS:,}, such as 0.2:2"
        raise ConfigError(f"{option} = {text!r}: {allowed}, or SECONDS+bytes/RATE, such as 0.5+bytes/4e8")
    return Spread(first, second)


def _seconds(option: str, value: float) -> float:
    if not 0 <= value <= bounds.SECONDS:
        raise ConfigError(f"{option} = {value:g}: must be seconds from 0 to {bounds.SECONDS:,}")
    return value
