"""Urgent jobs injected at busy hours (Agung et al. 2021, section III-B)."""

from __future__ import annotations

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.results.timeline import held_units, means, steps
from omfs_daemon.simulate.workload.urgent_jobs import SIZES, urgent_workload
from omfs_daemon.simulate.workload.workload import Workload

_HOURS_OF_MONTH = 30 * 24
_FIRST_ID = 1_000_000


def injected(undisturbed: Outcome, seed: int, *, threshold: float = 0.75) -> Workload:
    """Urgent jobs at busy hours of a run without them: one in each month that has one, at random.

    A busy hour is one over which the mean utilisation was at least ``threshold``, before the last job came; a month
    has 30 days. Sizes are drawn from ``SIZES``, those that the machine can hold. ConfigError if there is no such hour
    or size.
    """
    machine, generator = undisturbed.machine, np.random.default_rng(seed)
    sizes = [size for size in SIZES if size[0] <= machine.cpus]
    if not sizes:
        raise ConfigError(f"urgent jobs need a machine of at least {SIZES[0][0]} CPUs, not {machine.cpus}")
    busy = np.flatnonzero(hourly_utilisation(undisturbed) >= threshold)
    if not len(busy):
        raise ConfigError(f"no urgent job is injected: utilisation is below {threshold:.0%} at every hour")
    months = np.split(busy, np.flatnonzero(np.diff(busy // _HOURS_OF_MONTH)) + 1)
    hours = np.array([generator.choice(month) for month in months])
    drawn = np.array(sizes)[generator.integers(len(sizes), size=len(months))]
    return urgent_workload(
        "injected", _FIRST_ID + np.arange(len(months)), hours * HOUR, drawn[:, 0].astype(np.int64), drawn[:, 1]
    )


def hourly_utilisation(outcome: Outcome) -> Floats:
    """Share of the machine that was held, for each hour from time 0 until the last job came."""
    segments, machine = outcome.segments, outcome.machine
    hours = int(outcome.workload.submit[-1] // HOUR) if len(outcome.workload) else 0
    held = steps(segments.begin, segments.end, held_units(outcome)[segments.job])
    utilisation: Floats = means(held, np.arange(hours + 1, dtype=np.float64) * HOUR) / (machine.nodes or machine.cpus)
    return utilisation
