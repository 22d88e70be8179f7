"""One row of an experiment's results: the figures of a workload under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.results.measure import measure, per_job
from omfs_daemon.simulate.results.result_files import save

# Upper edges of the ranges in which slowdowns are counted; the last range has none.
SLOWDOWNS = (1.1, 1.5, 2.0, 5.0, 10.0, 100.0)

# Sums of seconds as floats: a start this much after the promise is no broken promise.
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The columns of results.csv. Means are over regular jobs that were done, as in Agung et al. (2021).

    jobs       of the workload, urgent ones included
    U_L        greatest slowdown of an urgent job; nan without urgent jobs
    makespan   seconds
    """

    workload: str
    policy: str
    jobs: int
    urgent_jobs: int
    mean_response: float
    mean_slowdown: float
    mean_bounded_slowdown: float
    urgent_mean_slowdown: float
    U_L: float
    preemptions: int
    utilisation: float
    makespan: float


COLUMNS = tuple(field.name for field in fields(ResultRow))


@dataclass(frozen=True, slots=True)
class Figures:
    """A row, and what a page shows besides.

    late       share of all jobs that are urgent and have a slowdown above 2
    promised, broken  jobs that were promised a start; those of them that started later
    regular, urgent   how many jobs there are in each range of ``SLOWDOWNS``
    """

    row: ResultRow
    late: float
    promised: int
    broken: int
    regular: tuple[int, ...]
    urgent: tuple[int, ...]


def figures(outcome: Outcome) -> Figures:
    """All of one simulation's figures, its workload under its own name."""
    # Only figures of regular and urgent jobs are wanted: who owns what does not matter.
    measures = measure(outcome, AccountTree(()))
    urgent, slowdown = outcome.workload.urgent, per_job(outcome)[2]
    # A job that was never done is in no range.
    ranges = np.searchsorted(SLOWDOWNS, slowdown, side="left")
    done = ~np.isnan(slowdown)
    counts = [np.bincount(ranges[done & mask], minlength=len(SLOWDOWNS) + 1) for mask in (~urgent, urgent)]
    regular_counts, urgent_counts = (tuple(int(number) for number in count) for count in counts)
    return Figures(
        row=ResultRow(
            workload=outcome.workload.name,
            policy=outcome.policy,
            jobs=len(outcome.workload),
            urgent_jobs=int(urgent.sum()),
            mean_response=measures.regular.response.mean,
            mean_slowdown=measures.regular.slowdown.mean,
            mean_bounded_slowdown=measures.regular.bounded_slowdown.mean,
            urgent_mean_slowdown=measures.urgent.slowdown.mean,
            U_L=measures.u_l,
            preemptions=measures.preemptions,
            utilisation=measures.utilisation,
            makespan=measures.makespan,
        ),
        late=float((urgent & (slowdown > 2.0)).mean()),
        promised=int((~np.isnan(outcome.promised)).sum()),
        broken=int((outcome.start > outcome.promised + _ROUNDING).sum()),
        regular=regular_counts,
        urgent=urgent_counts,
    )


def write_rows(path: Path, kind: type[Any], rows: Sequence[Any]) -> None:
    """Dataclass rows of one kind as CSV, empty where there is no figure; ConfigError if it cannot be written."""
    columns = [field.name for field in fields(kind)]
    table = pl.DataFrame([asdict(row) for row in rows], schema=columns).fill_nan(None)
    save(path, lambda file: table.write_csv(file))
