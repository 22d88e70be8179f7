"""Why cores were idle in the hours that the daemon watched: it knows limits and holds that accounting does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.daemon.store.idle_hours import HOUR, IdleHour
from omfs_daemon.reports.machine_use import HEAPS, MachineUse

_WATCHED = 0.9 * HOUR
"""Seconds of an hour that were watched at least: less does not stand for all of it."""


def covering(hours: Sequence[IdleHour], begin: float, end: float) -> list[IdleHour]:
    """The hours that meet the period and that the daemon watched."""
    return [hour for hour in hours if begin < hour.begin + HOUR and hour.begin < end and hour.watched >= _WATCHED]


def covered_seconds(hours: Sequence[IdleHour], begin: float, end: float) -> float:
    """Of the period, what these hours cover."""
    return sum(min(end, hour.begin + HOUR) - max(begin, hour.begin) for hour in hours)


def split_as_recorded(use: MachineUse, hours: Sequence[IdleHour]) -> MachineUse:
    """``use`` with the idle cores of these hours (in order; see ``covering``) in the shares that the daemon recorded.

    Of what is neither limited, dependent, nor without anybody who waits, accounting says how much was kept for a large
    job: what is large is the report's to say. Heaps still sum up to idle at every moment.
    """
    hours = [hour for hour in hours if _idle_of(hour) > 0]
    if not hours:
        return use
    begins = np.array([hour.begin for hour in hours])
    use = _changing_at(use, np.concatenate((begins, begins + HOUR)))
    at = np.maximum(np.searchsorted(begins, use.time, side="right") - 1, 0)
    recorded = (use.time >= begins[at]) & (use.time < begins[at] + HOUR)
    idle, heaps = use.idle.astype(np.float64), {name: cores.astype(np.float64) for name, cores in use.heaps.items()}
    found = {
        name: idle * np.array([hour.cpu_seconds.get(name, 0.0) / _idle_of(hour) for hour in hours])[at]
        for name in ("nobody_waits", "limited", "dependent")
    }
    others = np.maximum(idle - sum(found.values()), 0.0)
    by_accounting = heaps["kept_for_large"] + heaps["does_not_fit"]
    found["kept_for_large"] = others * heaps["kept_for_large"] / np.maximum(by_accounting, 1.0)
    found["does_not_fit"] = others - found["kept_for_large"]
    return replace(use, heaps={name: np.where(recorded, found[name], heaps[name]) for name in HEAPS})


def _idle_of(hour: IdleHour) -> float:
    return sum(hour.cpu_seconds.get(name, 0.0) for name in HEAPS)


def _changing_at(use: MachineUse, times: Floats) -> MachineUse:
    """The same use, with an entry at each of these times too."""
    inside = times[(times > use.time[0]) & (times < use.end)]
    time = np.union1d(use.time, inside)
    at = np.searchsorted(use.time, time, side="right") - 1
    return MachineUse(
        time,
        use.end,
        use.available[at],
        use.used[at],
        use.down[at],
        use.waiting[at],
        use.pending[at],
        {name: cores[at] for name, cores in use.heaps.items()},
    )
