"""What reading a file of records reports, for all formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.errors import ConfigError

# Takes the fraction of the file that has been read, 0 to 1.
Progress = Callable[[float], None]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace records about its machine; None and empty: nothing.

    cpus         what ``Workload.cpus`` counts, on the whole machine
    size_source  who says that, for people
    start        seconds since the epoch at the trace's own time 0
    acknowledge  whom its terms ask to name beside results
    """

    cpus: int | None = None
    nodes: int | None = None
    start: float | None = None
    computer: str = ""
    acknowledge: tuple[str, ...] = ()
    urgent_queues: tuple[int, ...] = ()
    size_source: str = "as the log's header says"


class Malformed(NamedTuple):
    """``place``: where it is, for people, e.g. line 12."""

    place: str
    why: str


@dataclass(frozen=True, slots=True)
class ReadReport:
    """How many of a file's records were read, dropped or malformed.

    records    how many there are, malformed ones included
    dropped    reason and count of good records that cannot be replayed
    malformed  in the order of the file
    notes      sentences on what else may be a mistake
    """

    path: Path
    records: int
    dropped: tuple[tuple[str, int], ...] = ()
    malformed: tuple[Malformed, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """Number of records in the workload."""
        return self.records - len(self.malformed) - sum(count for _, count in self.dropped)

    def sentences(self) -> tuple[str, ...]:
        """For people, beside every result."""
        sentences = [f"{self.path.name}: {self.records:,} records, {self.kept:,} kept"]
        sentences += [f"left out: {count:,} with {reason}" for reason, count in self.dropped]
        if self.malformed:
            sentences.append(f"left out: {len(self.malformed):,} malformed: {self.malformed_in_short()}")
        return (*sentences, *self.notes)

    def malformed_in_short(self) -> str:
        """The first few, with their places."""
        shown = [f"{place} ({why})" for place, why in self.malformed[:_SHOWN]]
        return ", ".join(shown) + (", ..." if len(self.malformed) > _SHOWN else "")


def require_usable(report: ReadReport, strict: bool) -> None:
    """ConfigError if nothing is left of the file, or if it has malformed records although that is forbidden."""
    if strict and report.malformed:
        raise ConfigError(f"{report.path}: {len(report.malformed):,} malformed: {report.malformed_in_short()}")
    if not report.kept:
        raise ConfigError("; ".join((f"{report.path}: no record that can be replayed", *report.sentences()[1:])))


def repeated(numbers: Ints | Floats) -> Bools:
    """Which entries occurred earlier in the array."""
    first = np.unique(numbers, return_index=True)[1]
    again = np.ones(len(numbers), dtype=np.bool_)
    again[first] = False
    return again
