"""UJFB: urgent jobs first with backfilling (Agung et al. 2021, section IV-B)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.costs import stop_costs
from omfs_daemon.simulate.kernels import ujfb as kernel
from omfs_daemon.simulate.outcome import Outcome, Segments
from omfs_daemon.simulate.setting import Setting
from omfs_daemon.simulate.units import counted


def ujfb(setting: Setting) -> Outcome:
    """The urgent queue strictly in order of arrival, as in the paper."""
    return _simulated(setting, "ujfb", kernel.FIRST_COME)


def by_slowdown(setting: Setting) -> Outcome:
    """The urgent queue in order of the slowdown reached so far: who is worst off is looked at first, and a job that
    fits need not wait behind one that does not."""
    return _simulated(setting, "ujfb-slowdown", kernel.BY_SLOWDOWN)


def _simulated(setting: Setting, name: str, order: int) -> Outcome:
    workload = setting.workload
    jobs, capacity = counted(setting)
    costs = stop_costs(workload, setting.costs, setting.seed)
    start, finish, stops, log = kernel.ujfb(*jobs, workload.urgent, costs, capacity, order)
    count = int(log.size[0])
    return Outcome(
        workload=workload,
        policy=name,
        machine=setting.machine,
        conventions=setting.conventions,
        start=start,
        finish=finish,
        run=jobs.run,
        stops=stops,
        segments=Segments(log.job[:count], log.begin[:count], log.end[:count], log.use[:count]),
        rejected=np.isnan(start),
        promised=np.full(len(start), np.nan),
    )
