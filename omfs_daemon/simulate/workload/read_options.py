"""Options of reading a workload, and what is read, for all formats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from omfs_daemon.accounting.arrays import Ints
from omfs_daemon.accounting.read_report import ReadReport, TraceFacts
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload

Processors = Literal["allocated", "requested"]
Accounts = Literal["group", "user", "queue", "none"]


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
class Loaded:
    """A workload and its source."""

    workload: Workload
    report: ReadReport
    facts: TraceFacts = field(default_factory=TraceFacts)


def numbered_accounts(kind: Accounts, numbers: Ints) -> tuple[tuple[str, ...], Ints]:
    """Account names from a column of numbers, and each job's index into them; below 0 is unknown."""
    if kind == "none":
        return ("all",), np.zeros(len(numbers), dtype=np.int64)
    return numbered(kind, numbers)


def numbered(kind: str, numbers: Ints) -> tuple[tuple[str, ...], Ints]:
    """The same for what is always told apart."""
    distinct, index = np.unique(np.maximum(numbers, -1), return_inverse=True)
    names = tuple(f"{kind}{number}" if number >= 0 else f"{kind}-unknown" for number in distinct.tolist())
    return names, index.astype(np.int64)
