"""The input of a simulation: workload, machine, conventions, costs, rules, seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.realtime_setting import RealtimeSetting
from omfs_daemon.simulate.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Machine:
    """``cpus`` in all; ``nodes`` 0: a flat counter of CPUs, else so many equal nodes, and jobs get whole nodes.

    ConfigError for a number that is not believed.
    """

    cpus: int
    nodes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.cpus <= bounds.CPUS:
            raise ConfigError(f"a machine of {self.cpus} CPUs (--procs): must be from 1 to {bounds.CPUS:,}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The input of one simulation, except its policy.

    rules  the daemon's entitlements, quantum and limits. Its job classes are not used: the workload itself defines
           which jobs are urgent and how each can be preempted.
    seed   of everything that is drawn
    realtime  places and checkpoints, for the policies that know them, and the terms of real-time jobs
    """

    workload: Workload
    machine: Machine
    conventions: Conventions = field(default_factory=Conventions)
    costs: CostModel = field(default_factory=CostModel)
    rules: Rules = field(default_factory=lambda: Rules(methods={}, unmatched=REGULAR))
    seed: int = 0
    realtime: RealtimeSetting = field(default_factory=RealtimeSetting)


def owners(workload: Workload, tree: AccountTree) -> Ints:
    """The index of the leaf that each job counts under."""
    return np.array([tree.leaf(name).index for name in workload.accounts], dtype=np.int64)[workload.account]
