"""Policies without backfilling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omfs_daemon.accounting.arrays import Bools
from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.fcfs_kernel import fcfs_kernel
from omfs_daemon.simulate.kernels.run_history import predictions_along
from omfs_daemon.simulate.policies.run_predictor import history_for


def fcfs(scenario: Scenario) -> Outcome:
    """First come, first served; urgent jobs are nothing special."""
    return _in_two_queues("fcfs", scenario, np.zeros(len(scenario.workload), dtype=np.bool_))


def ujf(scenario: Scenario) -> Outcome:
    """Urgent jobs first (Agung et al. 2021): two queues, each first come, first served; no regular job starts while an
    urgent one waits; nobody is preempted."""
    return _in_two_queues("ujf", scenario, scenario.workload.urgent)


def _in_two_queues(name: str, scenario: Scenario, urgent: Bools) -> Outcome:
    jobs, capacity = counted(scenario)
    fitting = jobs.cpus <= capacity
    start = fcfs_kernel(
        jobs.submit, jobs.cpus, jobs.run, np.flatnonzero(urgent & fitting), np.flatnonzero(~urgent & fitting), capacity
    )
    found = undisturbed(scenario.workload, name, scenario.machine, scenario.conventions, start, jobs.run)
    if scenario.conventions.learning is None:
        return found
    # The order of submission alone decides: predictions are only reported.
    history = history_for(scenario, fitting)
    estimate = np.full(len(start), np.nan)
    submit, finish, run = jobs.submit[fitting], found.finish[fitting], jobs.run[fitting]
    estimate[fitting] = predictions_along(submit, finish, np.lexsort((run == 0, finish)), run, history)
    return replace(found, estimate=estimate)
