"""Conservative backfilling: every job is told on arrival when it will start at the latest."""

from __future__ import annotations

from omfs_daemon.simulate.kernels import conservative_kernel as kernel
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.outcome import undisturbed
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.engine.machine_units import counted


def conservative(setting: Setting) -> Outcome:
    """With compression: when a job ends early, those that wait move up, none to a later time (Mu'alem and Feitelson
    2001, section 2.2)."""
    return _simulated(setting, "conservative", compressing=True)


def uncompressed(setting: Setting) -> Outcome:
    """Without: what an early end leaves free is for jobs that come later."""
    return _simulated(setting, "conservative-fixed", compressing=False)


def _simulated(setting: Setting, name: str, compressing: bool) -> Outcome:
    jobs, capacity = counted(setting)
    start, promised = kernel.conservative(*jobs, capacity, compressing)
    return undisturbed(setting.workload, name, setting.machine, setting.conventions, start, jobs.run, promised)
