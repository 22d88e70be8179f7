"""EASY backfilling (Lifka 1995; Mu'alem & Feitelson 2001)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.conventions import Jobs
from omfs_daemon.simulate.kernels import easy as kernel
from omfs_daemon.simulate.outcome import Outcome, undisturbed
from omfs_daemon.simulate.setting import Setting
from omfs_daemon.simulate.units import counted
from omfs_daemon.simulate.workload import Bools, Floats, Ints


def easy(setting: Setting) -> Outcome:
    """One queue in order of submission; only its head has a reservation. Urgent jobs are nothing special."""
    jobs, capacity = counted(setting)
    account, caps = np.zeros(len(jobs.cpus), dtype=np.int64), np.array([capacity])
    start, promised = backfilled(jobs, jobs.cpus <= capacity, account, caps, capacity)
    return undisturbed(setting.workload, "easy", setting.machine, setting.conventions, start, jobs.run, promised)


def backfilled(jobs: Jobs, chosen: Bools, account: Ints, caps: Ints, capacity: int) -> tuple[Floats, Floats]:
    """Starts and first promises, in seconds, one entry a job of ``jobs``, of those that are chosen, on a machine of
    their own; nan for the others. ``caps`` as in the kernel, but a cap of the whole machine is none."""
    start, promised = np.full(len(chosen), np.nan), np.full(len(chosen), np.nan)
    submit, cpus, run, estimate = jobs.submit[chosen], jobs.cpus[chosen], jobs.run[chosen], jobs.estimate[chosen]
    # A job that the machine itself has no room for must become the head, not be passed over for its account's cap.
    limits = np.where(caps >= capacity, np.iinfo(np.int64).max, caps)
    start[chosen], promised[chosen] = kernel.easy(submit, cpus, run, estimate, account[chosen], limits, capacity)
    return start, promised
