"""Policies without backfilling."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.kernels import fcfs_kernel as kernel
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import undisturbed
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.engine.machine_units import counted
from omfs_daemon.simulate.workload.workload import Bools


def fcfs(setting: Setting) -> Outcome:
    """First come, first served; urgent jobs are nothing special."""
    return _in_two_queues("fcfs", setting, np.zeros(len(setting.workload), dtype=np.bool_))


def ujf(setting: Setting) -> Outcome:
    """Urgent jobs first (Agung et al. 2021): two queues, each first come, first served; no regular job starts while an
    urgent one waits; nobody is stopped."""
    return _in_two_queues("ujf", setting, setting.workload.urgent)


def _in_two_queues(name: str, setting: Setting, urgent: Bools) -> Outcome:
    jobs, capacity = counted(setting)
    fitting = jobs.cpus <= capacity
    start = kernel.fcfs(
        jobs.submit, jobs.cpus, jobs.run, np.flatnonzero(urgent & fitting), np.flatnonzero(~urgent & fitting), capacity
    )
    return undisturbed(setting.workload, name, setting.machine, setting.conventions, start, jobs.run)
