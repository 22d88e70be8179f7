"""EASY backfilling (Lifka 1995; Mu'alem & Feitelson 2001)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.engine.conventions import Jobs
from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.easy_kernel import easy_kernel
from omfs_daemon.simulate.workload.workload import Bools, Floats


def easy(scenario: Scenario) -> Outcome:
    """One queue in order of submission; only its head has a reservation. Urgent jobs are nothing special."""
    jobs, capacity = counted(scenario)
    start, promised = backfilled(jobs, jobs.cpus <= capacity, capacity)
    return undisturbed(scenario.workload, "easy", scenario.machine, scenario.conventions, start, jobs.run, promised)


def backfilled(jobs: Jobs, chosen: Bools, capacity: int, reserving: bool = True) -> tuple[Floats, Floats]:
    """Starts and first promises, in seconds, one entry per job of ``jobs``, of those that are chosen, on a machine of
    their own; nan for the others. Without ``reserving`` whatever fits starts."""
    start, promised = np.full(len(chosen), np.nan), np.full(len(chosen), np.nan)
    submit, cpus, run, estimate = jobs.submit[chosen], jobs.cpus[chosen], jobs.run[chosen], jobs.estimate[chosen]
    start[chosen], promised[chosen] = easy_kernel(submit, cpus, run, estimate, capacity, reserving)
    return start, promised
