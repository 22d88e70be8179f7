"""How much is held at which time: step functions made from segments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.simulate.engine.machine_units import units
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.engine.scenario import Machine


class Steps(NamedTuple):
    """``levels[i]`` holds from ``times[i]`` to ``times[i + 1]``, the last one forever (it is 0); times ascend."""

    times: Floats
    levels: Floats


def steps(begin: Floats, end: Floats, amount: Floats) -> Steps:
    """The sum of all segments, each with its amount from begin to end; amounts must be whole for it to be exact."""
    times, at = np.unique(np.concatenate((begin, end)), return_inverse=True)
    changes = np.bincount(at, weights=np.concatenate((amount, -amount)), minlength=len(times))
    return Steps(times, np.cumsum(changes))


def means(held: Steps, edges: Floats) -> Floats:
    """The mean level within each bin; ``edges`` ascend, one more than there are bins."""
    if not len(held.times):
        return np.zeros(len(edges) - 1)
    # The integral of a step function is piecewise linear, so reading it off at the edges is exact.
    integral = np.concatenate(((0.0,), np.cumsum(held.levels[:-1] * np.diff(held.times))))
    mean: Floats = np.diff(np.interp(edges, held.times, integral)) / np.diff(edges)
    return mean


def held_units(outcome: Outcome) -> Floats:
    """What each job holds while it is on the machine: CPUs, those of its place, or whole nodes. Whole numbers, so that
    sums are exact."""
    if outcome.held is not None:
        return outcome.held.astype(np.float64)
    return units(outcome.workload.cpus, outcome.machine).astype(np.float64)


def unit_cpus(machine: Machine) -> float:
    """CPUs of one unit."""
    return machine.cpus / machine.nodes if machine.nodes else 1.0
