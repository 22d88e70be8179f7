"""EASY backfilling (Lifka 1995; Mu'alem & Feitelson 2001)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.simulate.engine.conventions import Jobs
from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.easy_kernel import easy_kernel
from omfs_daemon.simulate.kernels.shortest_first_kernel import shortest_first_kernel
from omfs_daemon.simulate.policies.run_predictor import history_for, nothing_learned


def easy(scenario: Scenario) -> Outcome:
    """One queue in order of submission; only its head has a reservation. Urgent jobs are nothing special."""
    return _in_one_queue("easy", scenario, shortest_first=False)


def shortest_first(scenario: Scenario) -> Outcome:
    """The same, but of the jobs behind the head the one that is expected to be the shortest is considered first; with
    predictions of the user's last two jobs that is EASY++ (Tsafrir, Etsion & Feitelson 2007)."""
    return _in_one_queue("easy-sjbf", scenario, shortest_first=True)


def _in_one_queue(name: str, scenario: Scenario, shortest_first: bool) -> Outcome:
    jobs, capacity = counted(scenario)
    fitting = jobs.cpus <= capacity
    start, promised, estimate = (np.full(len(fitting), np.nan) for _ in range(3))
    history = history_for(scenario, fitting)
    submit, cpus, run, guess = jobs.submit[fitting], jobs.cpus[fitting], jobs.run[fitting], jobs.estimate[fitting]
    if shortest_first:
        start[fitting], promised[fitting] = shortest_first_kernel(submit, cpus, run, guess, capacity, history)
    else:
        start[fitting], promised[fitting] = easy_kernel(submit, cpus, run, guess, capacity, True, history)
    estimate[fitting] = guess
    found = undisturbed(scenario.workload, name, scenario.machine, scenario.conventions, start, jobs.run, promised)
    return replace(found, estimate=estimate)


def backfilled(jobs: Jobs, chosen: Bools, capacity: int, reserving: bool) -> tuple[Floats, Floats]:
    """Starts and first promises, in seconds, one entry per job of ``jobs``, of those that are chosen, on a machine of
    their own; nan for the others. Without ``reserving`` whatever fits starts."""
    start, promised = np.full(len(chosen), np.nan), np.full(len(chosen), np.nan)
    submit, cpus, run, estimate = jobs.submit[chosen], jobs.cpus[chosen], jobs.run[chosen], jobs.estimate[chosen]
    nothing = nothing_learned(len(submit))
    start[chosen], promised[chosen] = easy_kernel(submit, cpus, run, estimate, capacity, reserving, nothing)
    return start, promised
