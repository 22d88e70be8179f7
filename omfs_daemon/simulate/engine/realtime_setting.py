"""Under which rules real-time jobs are served in a simulation (docs/simulating.md, Real-time jobs)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.policy.rules.checkpoint_laws import ACT_AT
from omfs_daemon.policy.rules.realtime_terms import MIRA_SIZES, JobSize, RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import CATEGORIES
from omfs_daemon.simulate.engine.checkpoint_scheme import JUST_IN_TIME, CheckpointScheme
from omfs_daemon.simulate.engine.conventions import Conventions, prepared
from omfs_daemon.simulate.engine.places import FLAT_LAYOUT, Layout
from omfs_daemon.simulate.workload.workload import Workload

SHORTEST_LIMIT = 1.0
"""Seconds; slowdowns and scores divide by the limit."""


@dataclass(frozen=True, slots=True)
class RealtimeSetting:
    """layout  where jobs can run
    scheme  how regular jobs write checkpoints
    shared_file_system  whether those that are written at once share its rate, or each has its own
    memory_per_cpu  bytes, of jobs of unknown size
    terms   from which slowdown on jobs are stopped for a real-time job, for which no more, and what they cost
    sizes   what is narrow and what is short
    """

    layout: Layout = FLAT_LAYOUT
    scheme: CheckpointScheme = JUST_IN_TIME
    shared_file_system: bool = True
    memory_per_cpu: float = 0.0
    terms: RealtimeTerms = field(default_factory=lambda: RealtimeTerms(act_at=ACT_AT))
    sizes: JobSize = MIRA_SIZES

    def sentences(self) -> Iterator[str]:
        """For people, beside every result."""
        if self.layout.places:
            count, widest = len(self.layout.places), self.layout.places[-1].size
            yield f"places: {self.layout.name}, {count:,}, the largest of {widest:,} CPUs; a job holds a whole place"
        else:
            yield "places: any CPUs"
        yield self.scheme.sentence()
        files = "share 216 GB/s" if self.shared_file_system else "have 216 GB/s each"
        size = f", {self.memory_per_cpu:g} bytes a CPU where the trace does not say" if self.memory_per_cpu else ""
        yield f"checkpoints take 4 GB/s for 128 CPUs; those written at once {files}{size}"
        yield f"a waiting real-time job is due from a slowdown of {_by_category(self.terms.act_at)}"
        yield f"under wcjs, a running job is not stopped above {_by_category(self.terms.victim_max)}"
        weights = self.terms.weights
        yield (
            "exponents of the cost of a stop: "
            f"slowdown {weights.slowdown:g}, checkpoint {weights.checkpoint:g}, remaining {weights.remaining:g}"
        )


def slowdown_limits(workload: Workload, conventions: Conventions) -> Floats:
    """Seconds by job: the time limit, or what is predicted instead."""
    return np.maximum(prepared(workload, conventions).estimate, SHORTEST_LIMIT)


def categories(workload: Workload, conventions: Conventions, cpus: int, sizes: JobSize) -> Ints:
    """The number of each job's category on a machine of so many CPUs."""
    limits = slowdown_limits(workload, conventions)
    alike, number = np.unique(np.stack((workload.cpus.astype(np.float64), limits)), axis=1, return_inverse=True)
    known = [sizes.category(int(of), float(limit), cpus) for of, limit in alike.T]
    return np.array(known, dtype=np.int64)[number.reshape(-1)]


def _by_category(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g} ({name})" for name, value in zip(CATEGORIES, values, strict=True))
