"""Which simulations there are: page, plots and claims read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
import numpy as np
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.simulate.options import Asked
from omfs_daemon.simulate.options import costs_for
from omfs_daemon.simulate.engine.conventions import Conventions
from omfs_daemon.simulate.engine.conventions import UserLimits
from omfs_daemon.simulate.engine.preemption_costs import CostModel
from omfs_daemon.simulate.engine.preemption_costs import Link
from omfs_daemon.simulate.experiments.zvi2021.figures import Sharing
from omfs_daemon.simulate.experiments.zvi2021.workloads import Study
from omfs_daemon.simulate.experiments.zvi2021.workloads import recorded
from omfs_daemon.simulate.engine.scenario import Setting
from omfs_daemon.simulate.workload.workload import Way
QUANTA = (0.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
# The paper's example, section II.
QUANTUM = 1800.0
LATENCIES = (10.0, 60.0)

# Bytes per second of all checkpoints of one decision together: a small site's file system.
SLOW = Link(each=4e9 / 128, together=1e9)

# The paper has no limit but the quantum.
_NO_LIMIT = 1_000_000


class Method(NamedTuple):
    """A way of stopping jobs, the same for all of them; ``link``: of checkpoints, if not the usual one."""

    title: str
    way: Way
    link: Link | None = None


METHODS = {
    "checkpoint": Method("checkpoint", Way.CHECKPOINT),
    "slow": Method("checkpoint, slow file system", Way.CHECKPOINT, SLOW),
    "swap": Method("swap", Way.SWAP),
    "kill": Method("kill", Way.KILL),
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
class Found:
    """All that a page tells.

    generated  workloads of the model without the jobs that partition refuses; ``wide``: with them
    recorded   those of a trace; none, if there is no trace
    """

    generated: Sequence[Study]
    wide: Sequence[Study]
    recorded: Sequence[Study]
    results: Results

    def of(self, studies: Iterable[Study], variant: Variant) -> list[Sharing]:
        """What this variant came to on each of the workloads."""
        return [self.results[study.name, variant] for study in studies]


def setting(study: Study, variant: Variant) -> Setting:
    """One simulation. All jobs can be stopped by one and the same method; run times are believed to be the limits."""
    method = METHODS[variant.method]
    jobs = study.workload
    return Setting(
        replace(jobs, way=np.full(len(jobs), int(method.way), dtype=np.int64)),
        study.machine,
        CONVENTIONS,
        _costs(method, variant.latency),
        Rules(tree=study.tree, quantum=variant.quantum, max_stops_per_hour=_NO_LIMIT, max_stops_per_cycle=_NO_LIMIT),
    )


CONVENTIONS = Conventions(UserLimits())


def _costs(method: Method, latency: float) -> CostModel:
    usual = costs_for(Asked(latency=latency))
    return usual if method.link is None else replace(usual, write=method.link, read=method.link)
