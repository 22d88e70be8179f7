"""What OMFS replaces: entitlements by walls. Neither baseline knows urgent jobs."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario, owners
from omfs_daemon.simulate.policies.easy import backfilled


def hard_partition(scenario: Scenario) -> Outcome:
    """Each account that owns a share (a leaf of the tree) has floor(share * machine) for itself, with an EASY queue of
    its own. Jobs wider than that are refused; CPUs that rounding leaves over stay idle."""
    return _within_walls("partition", scenario, reserving=True)


def capping(scenario: Scenario) -> Outcome:
    """One machine and one EASY queue, but no account (leaf of the tree) ever holds more than floor(share * machine). A
    job over its account's cap is passed over and blocks nobody, as under Slurm's AssocGrpCpuLimit, so narrower jobs of
    its own account may overtake it for as long as they come. Jobs wider than their cap are refused.

    Caps add up to at most the machine, so a job within its cap always finds room: accounts do not meet, and in each,
    whatever fits within its cap starts. Only a cap of the whole machine is none, and leaves EASY as it is.
    """
    return _within_walls("capping", scenario, reserving=False)


def _within_walls(name: str, scenario: Scenario, reserving: bool) -> Outcome:
    jobs, capacity = counted(scenario)
    owner = owners(scenario.workload, scenario.rules.tree)
    start, promised = np.full(len(owner), np.nan), np.full(len(owner), np.nan)
    for index, owned in enumerate(scenario.rules.tree.entitled(capacity)):
        chosen = (owner == index) & (jobs.cpus <= owned)
        if chosen.any():
            begins, promises = backfilled(jobs, chosen, owned, reserving or owned == capacity)
            start[chosen], promised[chosen] = begins[chosen], promises[chosen]
    return undisturbed(scenario.workload, name, scenario.machine, scenario.conventions, start, jobs.run, promised)
