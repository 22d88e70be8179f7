"""From what people ask for, as text and numbers, to the setting of a simulation; for every command that simulates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from omfs_daemon.config.schema import Config as config_Config
from omfs_daemon.config.load import load as config_load
from omfs_daemon.config.build import rules as config_rules
from omfs_daemon.errors import ConfigError
from omfs_daemon.config.percent import percent
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.workload import bounds
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.conventions import UserLimits
from omfs_daemon.simulate.engine.preemption_costs import BY_SIZE
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.engine.preemption_costs import Spread
from omfs_daemon.simulate.engine.scenario import owners
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Workload

_NAMED = 6

Estimates = Literal["user", "exact"]

# UJFB, Table 3: 5.1 GB in 0.84 s, for each engine by itself.
_SWAP = Link(each=6e9)
# Mira's file system (WCJS): 4 GB/s for 128 nodes, 216 GB/s in all.
_FILE_SYSTEM = Link(each=4e9 / 128, together=216e9)


@dataclass(frozen=True, slots=True)
class Asked:
    """How to simulate, as typed; the names are those of the options.

    procs         CPUs of the machine; None: what the trace's header says
    nodes         0: a flat counter of CPUs
    swap_out, swap_in  ``LO:HI`` in seconds, or ``SECONDS+bytes/RATE`` as ``omfs methods fit`` prints it; None: by size,
                  at the speed that the paper measured
    checkpoint_out, checkpoint_in  the same of checkpoints
    entitlement   ``NAME=PERCENT`` each; none: those of ``config``, else equal shares
    config        a daemon's configuration, for entitlements, quantum and limits
    quantum       seconds; None: that of ``config``
    """

    procs: int | None = None
    nodes: int = 0
    estimates: Estimates = "user"
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

    def __post_init__(self) -> None:
        """What is wrong whatever the workload is said at once, not after a long load."""
        conventions_for(self)
        costs_for(self)
        _shares(self.entitlement)
        if self.procs is not None:
            Machine(self.procs)
        if self.quantum is not None:
            _seconds("--quantum", self.quantum)
        if self.seed < 0:
            raise ConfigError(f"--seed = {self.seed}: must be 0 or more")


class Understood(NamedTuple):
    """``notes``: what was decided where nothing was asked for, in sentences."""

    setting: Setting
    notes: tuple[str, ...]


def setting_for(asked: Asked, workload: Workload, header_cpus: int | None) -> Understood:
    """The setting for a workload whose header names so many CPUs (None: it names none); ConfigError."""
    machine, said = machine_for(asked, header_cpus)
    rules, whose = rules_for(asked, workload)
    setting = Setting(workload, machine, conventions_for(asked), costs_for(asked), rules, asked.seed)
    return Understood(setting, (*said, whose, *_without_jobs(rules.tree, workload)))


def machine_for(asked: Asked, header_cpus: int | None) -> tuple[Machine, tuple[str, ...]]:
    """The machine, and a sentence if its size is the header's."""
    cpus = asked.procs if asked.procs is not None else header_cpus
    if cpus is None:
        raise ConfigError("--procs is needed: the workload does not say how many CPUs the machine has")
    machine = Machine(cpus, asked.nodes)
    if not 0 <= asked.nodes <= min(cpus, bounds.NODES) or (asked.nodes and cpus % asked.nodes):
        allowed = f"must divide the {cpus} CPUs into equal nodes, {bounds.NODES:,} at most (0: no nodes)"
        raise ConfigError(f"--nodes = {asked.nodes}: {allowed}")
    said = () if asked.procs is not None else (f"--procs not given: {cpus:,} CPUs, as the trace's header says",)
    return machine, said


def conventions_for(asked: Asked) -> Conventions:
    if not 0 < asked.bound <= bounds.SECONDS:
        raise ConfigError(f"--bound = {asked.bound:g}: must be seconds above 0, {bounds.SECONDS:,} at most")
    return Conventions(UserLimits() if asked.estimates == "user" else None, asked.kill, asked.bound)


def costs_for(asked: Asked) -> CostModel:
    return CostModel(
        latency=_seconds("--latency", asked.latency),
        write=_cost("--checkpoint-out", asked.checkpoint_out, _FILE_SYSTEM),
        read=_cost("--checkpoint-in", asked.checkpoint_in, _FILE_SYSTEM),
        swap_out=_cost("--swap-out", asked.swap_out, _SWAP),
        swap_in=_cost("--swap-in", asked.swap_in, _SWAP),
    )


def rules_for(asked: Asked, workload: Workload) -> tuple[Rules, str]:
    """Entitlements, quantum and limits, and a sentence that says whose the entitlements are."""
    loaded = config_load(asked.config) if asked.config else config_Config()
    shares, whose = loaded.shares, f"entitlements of {asked.config}"
    if asked.entitlement:
        shares, whose = _shares(asked.entitlement), "entitlements as asked for"
    if not shares:
        shares = equal_shares(workload)
        whose = f"no entitlements given: equal shares for the accounts that have regular jobs ({len(shares)})"
    if asked.quantum is not None:
        section = loaded.policy.model_copy(update={"quantum_seconds": asked.quantum})
        loaded = loaded.model_copy(update={"policy": section})
    return config_rules(loaded, shares), whose


def site_rules(path: Path | None) -> Rules | None:
    """The rules of a daemon's configuration, whose classes say who is urgent and how a job can be stopped."""
    if path is None:
        return None
    loaded = config_load(path)
    return config_rules(loaded, loaded.shares)


def estimates_named(name: str) -> Estimates:
    """``user`` or ``exact``; ConfigError for another word."""
    if name not in ("user", "exact"):
        raise ConfigError(f"--estimates = {name!r}: must be user or exact")
    return "user" if name == "user" else "exact"


def equal_shares(workload: Workload) -> tuple[AccountShare, ...]:
    """The whole machine, in equal parts for the accounts that have regular jobs."""
    present = [workload.accounts[index] for index in np.unique(workload.account[~workload.urgent]).tolist()]
    return tuple(AccountShare(name, Fraction(100, len(present))) for name in present)


def _without_jobs(tree: AccountTree, workload: Workload) -> tuple[str, ...]:
    """A sentence that names the accounts that own a share and that no job counts under: they may be slips."""
    named, used = {share.name for share in tree.shares}, set(owners(workload, tree).tolist())
    leaves = (entity for entity in tree.entities if entity.is_leaf and entity.name in named)
    idle = [leaf.name for leaf in leaves if leaf.index not in used]
    more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
    return (f"accounts with an entitlement and without jobs: {', '.join(idle[:_NAMED])}{more}",) if idle else ()


def _shares(texts: Iterable[str]) -> tuple[AccountShare, ...]:
    """``NAME=PERCENT`` each; ConfigError for anything else, and if they do not go together."""
    shares = tuple(_share(text) for text in texts)
    try:
        AccountTree(shares)
    except ConfigError as error:
        raise ConfigError(f"--entitlement: {error}") from None
    return shares


def _share(text: str) -> AccountShare:
    name, equals, amount = text.rpartition("=")
    try:
        if not equals or not name.strip():
            raise ValueError("must be NAME=PERCENT")
        return AccountShare(name.strip(), percent(amount))
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
