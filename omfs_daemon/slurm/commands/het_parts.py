"""Makes one job of the parts of each heterogeneous job that squeue prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock

from omfs_daemon.cluster.het_jobs import HetJobs
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands import values
from omfs_daemon.slurm.commands.squeue_fields import JobRow, first_part
from omfs_daemon.slurm.gateway import OrderRefusal

PARTS_FORMAT = "HetJobID:|,HetJobIDSet:|"
"""The format for ``squeue -O`` that ``part_ids`` reads; it prints no text of users."""

_MOST_PARTS = 10_000
_HAS_ENDED = re.compile(r"already (finished|completing or completed)")


def part_ids(printed: str) -> dict[int, tuple[int, ...]]:
    """The ids of all parts, by that of the first one; ParseError."""
    found: dict[int, tuple[int, ...]] = {}
    for line in printed.splitlines():
        first, _, listed = line.partition("|")
        if first.isascii() and first.isdecimal():
            found[int(first)] = tuple(sorted(_numbers(listed.rstrip("|"))))
    return found


def _numbers(listed: str) -> Iterator[int]:
    """1, 2, 3, 7 for ``1-3,7``."""
    for piece in listed.split(","):
        first, _, last = piece.partition("-")
        yield from islice(range(values.whole(first), values.whole(last or first) + 1), _MOST_PARTS)


class HetParts:
    """Remembers which parts each job had when it was submitted: squeue is asked for that once for each, and prints no
    part that has ended. ``squeue`` runs it with options and variables."""

    def __init__(self, squeue: Callable[[Iterable[str], dict[str, str]], str]) -> None:
        self._squeue = squeue
        self._het_jobs = HetJobs()
        self._ids: dict[int, tuple[int, ...]] = {}
        self._incomplete: set[str] = set()
        self._lock = Lock()

    def without_ended(self, refusals: Iterable[OrderRefusal]) -> list[OrderRefusal]:
        """The refusals without those that are only about a part that has ended."""
        return [one for one in refusals if one.ref not in self._incomplete or not _HAS_ENDED.search(one.message)]

    def merged(self, jobs: Sequence[Job], rows: Iterable[JobRow], is_all: bool = True) -> list[Job]:
        """``jobs``: those of these rows. ``is_all``: these are all jobs, so others are forgotten. May be called from
        any thread."""
        with self._lock:
            return self._merged(jobs, rows, is_all)

    def _merged(self, jobs: Sequence[Job], rows: Iterable[JobRow], is_all: bool) -> list[Job]:
        first_of = {int(row.job_id): first for row in rows if (first := first_part(row)) is not None}
        firsts = set(first_of.values())
        if firsts - self._ids.keys():
            self._ids |= self._asked()
        if is_all:
            self._ids = {first: ids for first, ids in self._ids.items() if first in firsts}
        merged = self._het_jobs.merge(jobs, first_of, self._ids, is_all)
        self._incomplete = {job.ref for job in merged if job.ended_part}.union(() if is_all else self._incomplete)
        return merged

    def _asked(self) -> dict[int, tuple[int, ...]]:
        printed = self._squeue(("--states=all",), {"SQUEUE_FORMAT2": PARTS_FORMAT})
        try:
            return part_ids(printed)
        except ParseError:
            return {}
