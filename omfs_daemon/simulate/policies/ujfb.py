"""UJFB: urgent jobs first with backfilling (Agung et al. 2021, section IV-B)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.engine.preemption_costs import stop_costs
from omfs_daemon.simulate.kernels.ujfb import ujfb_kernel as kernel
from omfs_daemon.simulate.kernels.ujfb.running_machine import JOB
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import Segments
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.engine.machine_units import counted


def ujfb(setting: Setting) -> Outcome:
    """The urgent queue in order of arrival, as in the paper; a later job goes first where it delays no earlier one."""
    return _simulated(setting, "ujfb")


def by_slowdown(setting: Setting) -> Outcome:
    """The urgent queue in order of the slowdown reached so far: who is worst off is looked at first, and a job that
    fits need not wait behind one that does not."""
    return _simulated(setting, "ujfb-slowdown", by_slowdown=True)


def with_easy(setting: Setting) -> Outcome:
    """The urgent queue as in the paper, regular jobs backfilled by EASY."""
    return _simulated(setting, "ujfb-easy", easy=True)


def _simulated(setting: Setting, name: str, by_slowdown: bool = False, easy: bool = False) -> Outcome:
    workload = setting.workload
    seen, capacity = counted(setting)
    costs = stop_costs(workload, setting.costs, setting.seed)
    jobs = np.zeros(len(workload), JOB)
    jobs["urgent"] = workload.urgent
    for known in (seen, costs):
        for field in set(known._fields) & set(JOB.names or ()):
            jobs[field] = getattr(known, field)
    log = kernel.ujfb(jobs, capacity, costs.area, costs.latency, by_slowdown, easy)
    start, size = jobs["start"].copy(), int(log.size[0])
    return Outcome(
        workload=workload,
        policy=name,
        machine=setting.machine,
        conventions=setting.conventions,
        start=start,
        finish=jobs["finish"].copy(),
        run=seen.run,
        stops=jobs["stops"].copy(),
        segments=Segments(log.job[:size], log.begin[:size], log.end[:size], log.use[:size]),
        rejected=np.isnan(start),
        promised=np.full(len(start), np.nan),
    )
