"""The simulations of the experiment, for page and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from omfs_daemon.simulate.engine.preemption_costs import Spread
from omfs_daemon.simulate.engine.scenario import Machine
from omfs_daemon.simulate.results.result_rows import Figures
from omfs_daemon.simulate.workload.workload import Workload

COMPARED = ("fcfs", "ujf", "conservative", "easy", "ujfb")
# What the paper does not have: a better order of the urgent queue, and EASY backfilling of regular jobs.
BY_SLOWDOWN, WITH_EASY = "ujfb-slowdown", "ujfb-easy"
ALL = (*COMPARED, BY_SLOWDOWN, WITH_EASY)
FACTORS = (20.0, 40.0)
SEED = 2021

# Seconds of a swap, drawn for each job (the authors' configuration); and of 0.5 to 1.25 GB by Figure 9.
SWAP_OUT, SWAP_IN = Spread(0.2, 2.0), Spread(0.1, 2.0)
SMALL_SWAP = Spread(0.09, 0.23)


class ReplayKind(Enum):
    """How a workload is replayed. TEXT: as the paper's text says. THEIRS: with the conventions of the authors' code, as
    far as they can be had: their clock, and swap-outs one after the other. ALONE: urgent jobs only."""

    TEXT = "as the text says"
    SMALL = "small swaps"
    THEIRS = "their conventions"
    ALONE = "urgent jobs alone"


class Key(NamedTuple):
    """Which simulation: ``factor`` is how many times as long swaps take."""

    kind: ReplayKind
    workload: str
    policy: str
    factor: float = 1.0


Results = Mapping[Key, Figures]


@dataclass(frozen=True, slots=True)
class AgungStudy:
    """A workload of the paper on its machine; ``notes``: what was read and left out, and whom to acknowledge."""

    workload: Workload
    machine: Machine
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.workload.name


class Sensitivity(NamedTuple):
    """The least and the greatest value when one of the ``jobs`` widest regular jobs is left out, on their clock."""

    jobs: int
    least: float
    greatest: float


class AgungResults(NamedTuple):
    """All results that a page shows; ``sensitivity`` by workload, policy and column of a row."""

    studies: Sequence[AgungStudy]
    results: Results
    sensitivity: Mapping[tuple[str, str, str], Sensitivity]
