"""Everything that a simulation goes by."""

from __future__ import annotations

from dataclasses import dataclass, field

from omfs_daemon.policy.rules import Rules
from omfs_daemon.simulate.conventions import Conventions
from omfs_daemon.simulate.costs import CostModel
from omfs_daemon.simulate.outcome import Machine
from omfs_daemon.simulate.workload import Workload


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
