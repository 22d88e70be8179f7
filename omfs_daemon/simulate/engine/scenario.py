"""Everything that a simulation goes by."""

from __future__ import annotations

from dataclasses import dataclass
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload import bounds
from dataclasses import dataclass, field
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.workload.workload import Workload
import numpy as np
from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.simulate.workload.workload import Ints


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
class Setting:
    """One simulation, apart from its policy.

    rules  entitlements, quantum and limits as the daemon has them. Its job classes are not used: a workload says
           itself who is urgent and how a job can be stopped.
    seed   of everything that is drawn
    """

    workload: Workload
    machine: Machine
    conventions: Conventions = field(default_factory=Conventions)
    costs: CostModel = field(default_factory=CostModel)
    rules: Rules = field(default_factory=Rules)
    seed: int = 0


def owners(workload: Workload, tree: AccountTree) -> Ints:
    """The index of the leaf that each job counts under."""
    return np.array([tree.leaf(name).index for name in workload.accounts], dtype=np.int64)[workload.account]
