"""UJFB: urgent jobs first with backfilling (Agung et al. 2021, section IV-B)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.engine.outcome import Outcome, Segments
from omfs_daemon.simulate.engine.preemption_costs import simulated_costs
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.kernels.ujfb.running_machine import JOB
from omfs_daemon.simulate.kernels.ujfb.ujfb_kernel import ujfb_kernel
from omfs_daemon.simulate.policies.run_predictor import learned_in, predicted_of


def ujfb(scenario: Scenario) -> Outcome:
    """The urgent queue in order of arrival, as in the paper; a later job goes first where it delays no earlier one."""
    return _simulated(scenario, "ujfb")


def by_slowdown(scenario: Scenario) -> Outcome:
    """The urgent queue in order of the slowdown reached so far: the worst-off job is considered first, and a job that
    fits need not wait behind one that does not."""
    return _simulated(scenario, "ujfb-slowdown", by_slowdown=True)


def with_easy(scenario: Scenario) -> Outcome:
    """The urgent queue as in the paper, regular jobs backfilled by EASY."""
    return _simulated(scenario, "ujfb-easy", easy=True)


def _simulated(scenario: Scenario, name: str, by_slowdown: bool = False, easy: bool = False) -> Outcome:
    workload = scenario.workload
    seen, capacity = counted(scenario)
    costs = simulated_costs(workload, scenario.costs, scenario.seed)
    jobs = np.zeros(len(workload), JOB)
    jobs["urgent"] = workload.urgent
    for known in (seen, costs):
        for field in set(known._fields) & set(JOB.names or ()):
            jobs[field] = getattr(known, field)
    history = learned_in(scenario)
    only = scenario.conventions.for_victims_only
    log = ujfb_kernel(jobs, capacity, costs.area, costs.latency, by_slowdown, easy, history, only)
    start, size = jobs["start"].copy(), int(log.size[0])
    return Outcome(
        workload=workload,
        policy=name,
        machine=scenario.machine,
        conventions=scenario.conventions,
        start=start,
        finish=jobs["finish"].copy(),
        run=seen.run,
        preemptions=jobs["preemptions"].copy(),
        segments=Segments(log.job[:size], log.begin[:size], log.end[:size], log.use[:size]),
        rejected=np.isnan(start),
        promised=np.full(len(start), np.nan),
        estimate=predicted_of(jobs, scenario),
    )
