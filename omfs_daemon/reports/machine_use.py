"""How a recorded machine was used: at every change, the cores used, down, and idle, and why they were idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Cores, Floats, Ints, SmallInts
from omfs_daemon.accounting.local_times import local_time
from omfs_daemon.accounting.read_report import TraceFacts
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.kernels import machine_use_kernel as kernel

_HEAP_ROWS = {
    "nobody_waits": kernel.NOBODY_WAITS,
    "does_not_fit": kernel.DOES_NOT_FIT,
    "kept_for_large": kernel.KEPT_FOR_LARGE,
    "limited": kernel.LIMITED,
    "dependent": kernel.DEPENDENT,
}
HEAPS = tuple(_HEAP_ROWS)
"""Where idle cores come from."""

_WEEK = 7 * 86400.0
_LIMITS = r"^(Assoc|QOS|Max|Grp|PartitionNodeLimit|PartitionTimeLimit|Licenses)"


class Down(NamedTuple):
    """Cores that were down, drained, or reserved, from ``begin`` to ``end``."""

    begin: float
    end: float
    cores: int


class MachineSize(NamedTuple):
    """Cores of the whole machine; None: the most that was used within each week. ``source``: for people.

    is_asked  whether the user says so, who is told if the log uses more
    """

    cores: int | None
    source: str
    is_asked: bool = False


def recorded_size(facts: TraceFacts) -> MachineSize:
    """What the log says."""
    if facts.cpus is None:
        return MachineSize(None, "the most used in each week: the log has no size")
    return MachineSize(facts.cpus, facts.size_source)


@dataclass(frozen=True, slots=True, eq=False)
class _Events:
    time: Floats
    event: SmallInts
    cores: Cores
    width: Cores
    limited: SmallInts
    widths: Ints


@dataclass(frozen=True, eq=False)
class MachineUse:
    """One entry of every array per change; it holds until the next, and the last one until ``end``.

    available  cores there are: at least those that are used
    waiting    number of pending jobs
    pending    their cores
    """

    time: Floats
    end: float
    available: Cores
    used: Cores
    down: Cores
    waiting: Cores
    pending: Ints
    heaps: Mapping[str, Cores | Floats]

    @cached_property
    def idle(self) -> Cores:
        return self.available - self.used - self.down

    @cached_property
    def seconds(self) -> Floats:
        """How long each entry holds."""
        return np.diff(np.append(self.time, self.end))

    def core_seconds(self, cores: Cores | Floats) -> float:
        """Summed up over the whole period."""
        return float((cores * self.seconds).sum())

    def between(self, cores: Cores | Floats, edges: Floats) -> Floats:
        """Core seconds in each span between two edges, which ascend."""
        sums = np.concatenate(((0.0,), np.cumsum(cores * self.seconds)))
        return np.diff(np.interp(edges, np.append(self.time, self.end), sums))

    def means(self, cores: Cores | Floats, edges: Floats) -> Floats:
        """Time averages between edges."""
        inside = np.clip(edges, self.time[0], self.end)
        return self.between(cores, edges) / np.maximum(np.diff(inside), 1e-9)


def machine_use(
    frame: pl.DataFrame, begin: float, end: float, size: MachineSize, large: int, down: Sequence[Down] = ()
) -> MachineUse:
    """From records of jobs (``accounting.job_records``), for the time from ``begin`` to ``end``.

    large  jobs of more cores are those for which others have to wait

    Each idle core belongs to one heap. What the pending jobs together could not fill: nobody waits. What only jobs
    could fill that were not eligible: dependent. Of what eligible jobs ask for, cores that none of them fits on: does
    not fit. The others could have been used by jobs that fit: limited, if only jobs could that a limit held back; kept
    for a large job, if one waits that does not fit; else does not fit, for accounting does not say why.
    ConfigError if the log uses more cores than the user says there are, or than any machine has.
    """
    if size.is_asked and size.cores is not None and size.cores > bounds.CPUS:
        raise ConfigError(f"--procs = {size.cores:,}: must be at most {bounds.CPUS:,}")
    events = _events(frame, begin, end, size, down)
    times, states, pending, most = kernel.machine_states(
        events.time, events.event, events.cores, events.width, events.limited, events.widths, large
    )
    del events  # as large as all records
    _require_plausible(most)
    first = max(int(np.searchsorted(times, begin, side="right")) - 1, 0)
    last = int(np.searchsorted(times, end, side="left"))
    times, states = np.maximum(times[first:last], begin), states[:, first:last]
    _require_enough(size, times, states[kernel.USED])
    return MachineUse(
        times,
        end,
        states[kernel.AVAILABLE],
        states[kernel.USED],
        states[kernel.DOWN_CORES],
        states[kernel.WAITING],
        pending[first:last],
        {name: states[row] for name, row in _HEAP_ROWS.items()},
    )


def _require_plausible(most: int) -> None:
    """Counts of cores are of 32 bits."""
    if most > bounds.CPUS:
        raise ConfigError(f"the log uses {most:,} cores at a time: must be at most {bounds.CPUS:,}")


def _require_enough(size: MachineSize, times: Floats, used: Cores) -> None:
    if size.is_asked and size.cores is not None and len(used) and used.max() > size.cores:
        at = int(np.argmax(used > size.cores))
        raise ConfigError(
            f"--procs = {size.cores:,}: the log uses {int(used[at]):,} at {local_time(float(times[at]))}, and up to "
            f"{int(used.max()):,}"
        )


def waits_of(frame: pl.DataFrame, end: float) -> pl.DataFrame:
    """Per run, when it waits: ``wait_begin``, ``wait_eligible``, ``wait_end`` (``end``: to the end of the period)."""
    begin = pl.col("submit")
    if not frame["is_last"].all():
        begin = pl.max_horizontal(begin, pl.col("end").shift(1).over("job_id"))
    stop = pl.coalesce(pl.col("start"), pl.col("end"), pl.lit(end))
    waits = frame.with_columns(begin.alias("wait_begin"), stop.alias("wait_end"))
    eligible = pl.min_horizontal(pl.col("eligible").fill_null(pl.col("wait_begin")), "wait_end")
    return waits.with_columns(
        pl.max_horizontal("wait_begin", eligible).alias("wait_eligible"),
        pl.max_horizontal("wait_begin", "wait_end").alias("wait_end"),
    )


_EVENT_COLUMNS = ("job_id", "submit", "eligible", "start", "end", "cpus", "reason", "is_last")


def _events(frame: pl.DataFrame, begin: float, end: float, size: MachineSize, down: Sequence[Down]) -> _Events:
    runs = waits_of(frame.select(_EVENT_COLUMNS), end).filter(pl.col("cpus") > 0)
    cores = runs["cpus"].to_numpy().astype(np.int32)
    limited = runs["reason"].str.contains(_LIMITS).fill_null(False).to_numpy().astype(np.int8)
    waited, eligible, stop = (runs[name].to_numpy() for name in ("wait_begin", "wait_eligible", "wait_end"))
    started = runs["start"].is_not_null().to_numpy()
    over = runs["end"].fill_null(end).to_numpy()
    at_once = eligible <= waited
    first = float(min(begin, *(float(time.min()) for time in (waited, eligible, stop, over) if len(time))))
    capacity = _capacity(runs, first, end, size)
    _require_plausible(max(total for _, total in capacity))
    of_machine = [(time, kernel.CAPACITY, total) for time, total in capacity]
    del runs
    of_machine += [(one.begin, kernel.DOWN, one.cores) for one in down]
    of_machine += [(one.end, kernel.DOWN, -one.cores) for one in down]
    # A state at the very begin of the period, even if nothing changes then.
    of_machine.append((begin, kernel.DOWN, 0))
    times, kinds, amounts = zip(*of_machine, strict=True)
    every, later, ran = np.arange(len(cores)), np.flatnonzero(~at_once), np.flatnonzero(started)
    # Time, kind, and job of each event; the machine's are counted on after the jobs.
    parts: tuple[tuple[Floats, Ints | int, Ints], ...] = (
        (waited, np.where(at_once, kernel.SUBMITTED, kernel.HELD), every),
        (eligible[later], kernel.ELIGIBLE, later),
        (stop, np.where(started, kernel.STARTED, kernel.GONE), every),
        (over[ran], kernel.ENDED, ran),
        (np.array(times, dtype=np.float64), np.array(kinds), len(cores) + np.arange(len(times))),
    )
    time = np.concatenate([part for part, _, _ in parts])
    kind = np.concatenate([np.broadcast_to(part, len(at)).astype(np.int8) for _, part, at in parts])
    job = np.concatenate([at.astype(np.int32) for _, _, at in parts])
    order = np.argsort(time, kind="stable").astype(np.int32)
    job = job[order]
    widths, width = np.unique(cores, return_inverse=True)
    nothing = np.zeros(len(times), dtype=np.int32)
    return _Events(
        time[order],
        kind[order],
        np.concatenate((cores, np.array(amounts, dtype=np.int32)))[job],
        np.concatenate((width.astype(np.int32), nothing))[job],
        np.concatenate((limited, nothing.astype(np.int8)))[job],
        widths.astype(np.int64),
    )


def _capacity(runs: pl.DataFrame, begin: float, end: float, size: MachineSize) -> list[tuple[float, int]]:
    """From when on there are how many cores."""
    if size.cores is not None:
        return [(begin, size.cores)]
    ran = runs.filter(pl.col("start").is_not_null())
    start, stop, cores = ran["start"].to_numpy(), ran["end"].fill_null(end).to_numpy(), ran["cpus"].to_numpy()
    time = np.concatenate((start, stop))
    order = np.argsort(time, kind="stable")
    time, used = time[order], np.cumsum(np.concatenate((cores, -cores))[order])
    last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, dtype=np.bool_)
    time, used = time[last], used[last]
    edges = np.arange(begin, max(end, begin + 1), _WEEK)
    level = np.concatenate(((0,), used))
    found = []
    for edge in edges.tolist():
        low, high = np.searchsorted(time, [edge, edge + _WEEK])
        found.append((edge, int(level[low : high + 1].max())))
    return found
