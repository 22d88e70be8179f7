"""Options and report of reading a workload, for all formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.workload.workload import Bools, Floats, Ints, PreemptMode, Workload

Processors = Literal["allocated", "requested"]
Accounts = Literal["group", "user", "queue", "none"]

# Takes the fraction of the file that has been read, 0 to 1.
Progress = Callable[[float], None]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a recorded workload is interpreted.

    processors     which of both numbers counts, where a trace has both; the other one where it is unknown
    accounts       whose jobs make an account; "none": all jobs belong to one, called all
    urgent_queues  numbers of the queues whose jobs are urgent; None: those that the trace's header names
    mode           how regular jobs can be preempted, where the trace does not define it; urgent jobs: never
    strict         whether a malformed line is an error
    rules          whose classes define which jobs are urgent and how a job can be preempted, where the trace has
                   partition, QOS and comment (Slurm's accounting); None: all are regular, and ``mode`` holds
    """

    processors: Processors = "allocated"
    accounts: Accounts = "group"
    urgent_queues: tuple[int, ...] | None = None
    mode: PreemptMode = PreemptMode.SWAP
    strict: bool = False
    rules: Rules | None = None

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("processors", self.processors, get_args(Processors)),
            ("accounts", self.accounts, get_args(Accounts)),
        ):
            if value not in allowed:
                raise ConfigError(f"{name}: {value!r} is not known: one of {', '.join(allowed)}")


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace records about its machine; None and empty: nothing.

    cpus         what ``Workload.cpus`` counts, on the whole machine
    start        seconds since the epoch at the trace's own time 0
    acknowledge  whom its terms ask to name beside results
    """

    cpus: int | None = None
    nodes: int | None = None
    start: float | None = None
    computer: str = ""
    acknowledge: tuple[str, ...] = ()
    urgent_queues: tuple[int, ...] = ()


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


@dataclass(frozen=True, slots=True)
class Loaded:
    """A workload and its source."""

    workload: Workload
    report: ReadReport
    facts: TraceFacts = field(default_factory=TraceFacts)


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


def numbered_accounts(kind: Accounts, numbers: Ints) -> tuple[tuple[str, ...], Ints]:
    """Account names from a column of numbers, and each job's index into them; below 0 is unknown."""
    if kind == "none":
        return ("all",), np.zeros(len(numbers), dtype=np.int64)
    distinct, index = np.unique(np.maximum(numbers, -1), return_inverse=True)
    names = tuple(f"{kind}{number}" if number >= 0 else f"{kind}-unknown" for number in distinct.tolist())
    return names, index.astype(np.int64)
