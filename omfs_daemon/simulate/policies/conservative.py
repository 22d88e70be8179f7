"""Conservative backfilling: on arrival every job is promised a latest start."""

from __future__ import annotations

from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, undisturbed
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.conservative_kernel import conservative_kernel


def conservative(scenario: Scenario) -> Outcome:
    """With compression: when a job ends early, those that wait move up, none to a later time (Mu'alem and Feitelson
    2001, section 2.2)."""
    return _simulated(scenario, "conservative", compressing=True)


def uncompressed(scenario: Scenario) -> Outcome:
    """Without: what an early end leaves free is for jobs that come later."""
    return _simulated(scenario, "conservative-fixed", compressing=False)


def _simulated(scenario: Scenario, name: str, compressing: bool) -> Outcome:
    jobs, capacity = counted(scenario)
    start, promised = conservative_kernel(*jobs, capacity, compressing)
    return undisturbed(scenario.workload, name, scenario.machine, scenario.conventions, start, jobs.run, promised)
