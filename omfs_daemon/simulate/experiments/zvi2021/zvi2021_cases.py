"""The simulations of the experiment, for page, plots and claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from omfs_daemon.policy.rules.classes import REGULAR, Rules
from omfs_daemon.simulate.engine.conventions import Conventions, UserLimits
from omfs_daemon.simulate.engine.preemption_costs import CostModel, Link
from omfs_daemon.simulate.engine.scenario import Scenario
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing
from omfs_daemon.simulate.experiments.zvi2021.workloads import ZviStudy
from omfs_daemon.simulate.options import SimulationOptions, costs_for
from omfs_daemon.simulate.workload.workload import PreemptMode

QUANTA = (0.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
# The paper's example, section II.
QUANTUM = 1800.0
LATENCIES = (10.0, 60.0)

# Bytes per second of all checkpoints of one decision together: a small site's file system.
SLOW = Link(each=4e9 / 128, together=1e9)

# The paper has no limit but the quantum.
_NO_LIMIT = 1_000_000


class SweptMethod(NamedTuple):
    """A preemption method, the same for all jobs; ``link``: of checkpoints, if not the usual one."""

    title: str
    mode: PreemptMode
    link: Link | None = None


METHODS = {
    "checkpoint": SweptMethod("checkpoint", PreemptMode.CHECKPOINT),
    "slow": SweptMethod("checkpoint, slow file system", PreemptMode.CHECKPOINT, SLOW),
    "swap": SweptMethod("swap", PreemptMode.SWAP),
    "kill": SweptMethod("kill", PreemptMode.KILL),
}
CHECKPOINT = "checkpoint"


class Variant(NamedTuple):
    """A policy, and for OMFS what is swept: method of ``METHODS``, quantum and decision latency in seconds."""

    policy: str
    method: str = CHECKPOINT
    quantum: float = QUANTUM
    latency: float = 0.0

    @property
    def name(self) -> str:
        """As in results.csv: what is not usual is named."""
        method = "" if self.method == CHECKPOINT else f"-{self.method}"
        quantum = "" if self.quantum == QUANTUM else f"-q{self.quantum:g}"
        latency = f"-latency{self.latency:g}" if self.latency else ""
        return f"{self.policy}{method}{quantum}{latency}"


PARTITION, CAPPING, FCFS, EASY, OMFS = (Variant(name) for name in ("partition", "capping", "fcfs", "easy", "omfs"))
BASELINES = (PARTITION, CAPPING, FCFS, EASY)
COMPARED = (*BASELINES, OMFS)
SWEPT = tuple(Variant("omfs", method, quantum) for method in METHODS for quantum in QUANTA)
LATE = tuple(Variant("omfs", latency=latency) for latency in LATENCIES)
# Of a recorded trace, which is long: the quantum by the usual method, and the other methods at the usual quantum.
OF_TRACE = (*(Variant("omfs", quantum=q) for q in QUANTA), *(Variant("omfs", method) for method in METHODS))

Results = Mapping[tuple[str, Variant], Sharing]


@dataclass(frozen=True, slots=True)
class ZviResults:
    """All results that a page shows.

    generated  workloads of the model without the jobs that partition refuses; ``wide``: with them
    recorded   those of a trace; none, if there is no trace
    """

    generated: Sequence[ZviStudy]
    wide: Sequence[ZviStudy]
    recorded: Sequence[ZviStudy]
    results: Results

    def of(self, studies: Iterable[ZviStudy], variant: Variant) -> list[Sharing]:
        """What this variant came to on each of the workloads."""
        return [self.results[study.name, variant] for study in studies]


def zvi2021_scenario(study: ZviStudy, variant: Variant) -> Scenario:
    """One simulation. All jobs can be preempted by the same method; run times are believed to be the limits."""
    method = METHODS[variant.method]
    jobs = study.workload
    return Scenario(
        replace(jobs, mode=np.full(len(jobs), int(method.mode), dtype=np.int64)),
        study.machine,
        CONVENTIONS,
        _costs(method, variant.latency),
        Rules(
            tree=study.tree,
            quantum=variant.quantum,
            max_preemptions_per_hour=_NO_LIMIT,
            max_preemptions_per_cycle=_NO_LIMIT,
            methods={},
            unmatched=REGULAR,
        ),
    )


CONVENTIONS = Conventions(UserLimits())


def _costs(method: SweptMethod, latency: float) -> CostModel:
    usual = costs_for(SimulationOptions(latency=latency))
    return usual if method.link is None else replace(usual, write=method.link, read=method.link)
