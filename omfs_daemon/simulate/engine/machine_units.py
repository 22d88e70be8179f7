"""The units that a machine allocates: CPUs of a flat counter, or whole nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.simulate.engine.conventions import Jobs, prepared
from omfs_daemon.simulate.engine.scenario import Machine, Scenario


class Counted(NamedTuple):
    """Jobs and machine as a kernel sees them, both counted in units; ``capacity`` is what the machine has of them."""

    jobs: Jobs
    capacity: int


def units(cpus: Ints, machine: Machine) -> Ints:
    """Units that jobs of so many CPUs hold: as many, or the nodes that have them, which they get whole."""
    return -(-cpus * machine.nodes // machine.cpus) if machine.nodes else cpus


def counted(scenario: Scenario) -> Counted:
    """The jobs of a scenario under its conventions, in units of its machine; jobs wider than it are included."""
    jobs = prepared(scenario.workload, scenario.conventions)
    machine = scenario.machine
    wanted = np.ascontiguousarray(units(jobs.cpus, machine), dtype=np.int64)
    return Counted(jobs._replace(cpus=wanted), machine.nodes or machine.cpus)
