"""Figure 8 of Yoon et al. (2020): one large job, the jobs behind it, and the idle cores before its start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.cells import read_cells
from omfs_daemon.reports.hole_filling import HOUR, FilledHole, HoleQueue, IdleProfile, filled_hole
from omfs_daemon.reports.hole_inputs import HoleInputs, iso_text

START = "2016-10-17T10:00:00"
"""The last stamp: the start of the large job is not printed."""
LATEST_START = "2016-10-17T10:13:00"
"""Up to then it decides nothing."""

PRINTED_SUM = 72_192
"""Core hours by the paper, which calls them seconds."""

_PRINTED = Path(__file__).parent / "figure8_printed.csv"
"""The figure as printed: per stamp the idle cores, and those left after each booking (empty: no cell). Local time."""

_JOBS = {
    **dict.fromkeys(("3028615", "3028616", "3028618", "3028619", "3028620", "3028621", "3028622"), 128),
    **dict.fromkeys(("3029153", "3029154", "3029155"), 4096),
    **dict.fromkeys(("3029157", "3029163"), 512),
    "3029182": 4096,
}
"""The cores of the waiting jobs, in the order of the queue; each may run for twelve hours."""

_SUBMITTED = (
    *("19:11:05", "19:11:12", "19:11:32", "19:11:37", "19:11:47", "19:11:54", "19:11:59"),
    *("21:41:54", "21:41:58", "21:42:04", "21:52:34", "21:59:35", "22:12:09"),
)
"""On 16 October 2016."""


class ProfileCell(NamedTuple):
    """``printed``: the paper's number, None: an empty cell; ``free_after``: ours after this job was booked."""

    time: str
    idle: int
    job_id: str
    free_after: int
    printed: int | None

    @property
    def same(self) -> bool:
        return self.free_after == self.printed


class Figure8(NamedTuple):
    hole: FilledHole
    inputs: HoleInputs
    cells: tuple[ProfileCell, ...]

    @property
    def accepted(self) -> tuple[str, ...]:
        queue = self.hole.queue
        return tuple(job for job, good in zip(queue.job_id, self.hole.accepted, strict=True) if good)

    def differing(self) -> dict[str, list[ProfileCell]]:
        """By stamp, the cells that differ from the paper's."""
        found = defaultdict(list)
        for cell in self.cells:
            if not cell.same:
                found[cell.time].append(cell)
        return dict(found)

    def sum_with_one_wide(self) -> float:
        """Core hours if the widest job counted once."""
        hole = self.hole
        widest = hole.queue.cores.max()
        once = [job for job in range(len(hole.accepted)) if hole.accepted[job] and hole.queue.cores[job] == widest][:1]
        others = hole.accepted & (hole.queue.cores < widest)
        others[once] = True
        return float((hole.queue.cores * hole.queue.length)[others].sum()) / HOUR


def figure8(start: str = START) -> Figure8:
    """Computed from the idle cores and jobs that the paper prints."""
    printed = read_cells(_PRINTED).frame
    times = np.array([_seconds(time) for time in printed["time"]])
    profile = IdleProfile(times, printed["idle"].cast(int).to_numpy())
    submit = np.array([_seconds(f"2016-10-16T{time}") for time in _SUBMITTED])
    queue = HoleQueue(tuple(_JOBS), submit, np.array(list(_JOBS.values())), np.full(len(_JOBS), 12 * HOUR))
    inputs = HoleInputs(profile, queue, _seconds(start), iso_text)
    hole = filled_hole(profile, queue, inputs.start)
    numbers = {(row["time"], job): int(row[job]) for row in printed.iter_rows(named=True) for job in _JOBS if row[job]}
    return Figure8(hole, inputs, tuple(_cells(inputs, hole, numbers)))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _cells(inputs: HoleInputs, hole: FilledHole, printed: dict[tuple[str, str], int]) -> Iterator[ProfileCell]:
    """Wherever an accepted job is booked, or the paper prints a number for it."""
    ends = hole.first_fit + inputs.queue.length
    stamps = [*inputs.profile.time.tolist(), float("inf")]
    for begin, following, idle in zip(stamps, stamps[1:], inputs.profile.free.tolist(), strict=False):
        free, time = idle, inputs.written(begin)
        for job, job_id in enumerate(inputs.queue.job_id):
            is_booked = bool(hole.accepted[job]) and hole.first_fit[job] < following and ends[job] > begin
            free -= int(inputs.queue.cores[job]) if is_booked else 0
            if is_booked or (time, job_id) in printed:
                yield ProfileCell(time, idle, job_id, free, printed.get((time, job_id)))
