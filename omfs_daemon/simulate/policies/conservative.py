"""Conservative backfilling: on arrival every job is promised a latest start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.conservative_kernel import conservative_kernel
from omfs_daemon.simulate.policies.run_predictor import history_for


def conservative(scenario: Scenario) -> Outcome:
    """With compression: when a job ends early, those that wait move up, none to a later time (Mu'alem and Feitelson
    2001, section 2.2)."""
    return _simulated(scenario, "conservative", compressing=True)


def uncompressed(scenario: Scenario) -> Outcome:
    """Without: what an early end leaves free is for jobs that come later."""
    return _simulated(scenario, "conservative-fixed", compressing=False)


def _simulated(scenario: Scenario, name: str, compressing: bool) -> Outcome:
    jobs, capacity = counted(scenario)
    fitting = jobs.cpus <= capacity
    start, promised, estimate = (np.full(len(fitting), np.nan) for _ in range(3))
    history = history_for(scenario, fitting)
    submit, cpus, run, guess = jobs.submit[fitting], jobs.cpus[fitting], jobs.run[fitting], jobs.estimate[fitting]
    start[fitting], promised[fitting] = conservative_kernel(submit, cpus, run, guess, capacity, compressing, history)
    estimate[fitting] = guess
    found = undisturbed(scenario.workload, name, scenario.machine, scenario.conventions, start, jobs.run, promised)
    return replace(found, estimate=estimate)
