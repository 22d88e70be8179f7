"""What OMFS replaces: entitlements by walls. Neither baseline knows urgent jobs."""

from __future__ import annotations

import numpy as np

from omfs_daemon.simulate.easy import backfilled
from omfs_daemon.simulate.outcome import Outcome, undisturbed
from omfs_daemon.simulate.setting import Setting
from omfs_daemon.simulate.units import counted
from omfs_daemon.simulate.workload import Ints


def hard_partition(setting: Setting) -> Outcome:
    """Each account that owns a share (a leaf of the tree) has floor(share * machine) for itself, with an EASY queue of
    its own. Jobs wider than that are refused; CPUs that rounding leaves over stay idle."""
    jobs, capacity = counted(setting)
    owner = owners(setting)
    start, promised = np.full(len(owner), np.nan), np.full(len(owner), np.nan)
    for index, owned in enumerate(setting.rules.tree.entitled(capacity)):
        chosen = (owner == index) & (jobs.cpus <= owned)
        if chosen.any():
            alone = np.zeros(len(owner), dtype=np.int64)
            part_start, part_promised = backfilled(jobs, chosen, alone, np.array([owned]), owned)
            start[chosen], promised[chosen] = part_start[chosen], part_promised[chosen]
    return undisturbed(setting.workload, "partition", setting.machine, setting.conventions, start, jobs.run, promised)


def capping(setting: Setting) -> Outcome:
    """One machine under EASY, but no account (leaf of the tree) ever holds more than floor(share * machine). A job over
    its account's cap is passed over and blocks nobody, as under Slurm's AssocGrpCpuLimit, so narrower jobs of its own
    account may overtake it for as long as they come. Jobs wider than their cap are refused.

    Entitlements add up to at most the machine, so a job within its cap always finds room: EASY's reservation only ever
    serves an account that owns the whole machine."""
    jobs, capacity = counted(setting)
    owner = owners(setting)
    caps = np.array(setting.rules.tree.entitled(capacity), dtype=np.int64)
    start, promised = backfilled(jobs, jobs.cpus <= caps[owner], owner, caps, capacity)
    return undisturbed(setting.workload, "capping", setting.machine, setting.conventions, start, jobs.run, promised)


def owners(setting: Setting) -> Ints:
    """The index of the entity that each job counts under."""
    tree, workload = setting.rules.tree, setting.workload
    return np.array([tree.leaf(name).index for name in workload.accounts], dtype=np.int64)[workload.account]
