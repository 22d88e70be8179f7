"""Lists of urgent jobs that are added to a workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from omfs_daemon.accounting import bounds
from omfs_daemon.accounting.arrays import Floats, Ints
from omfs_daemon.accounting.cells import NumberColumn, read_cells, understood
from omfs_daemon.errors import ConfigError
from omfs_daemon.simulate.workload.read_options import Loaded
from omfs_daemon.simulate.workload.workload import PreemptMode, Workload, merged, workload

ACCOUNT = "urgent"

# CPUs and seconds of the tsunami simulations that are injected (Table 1).
SIZES = ((128, 600.0), (256, 390.0), (512, 240.0))

_INPUTS = Path(__file__).parent / "inputs"
_RULES = (
    NumberColumn("job_id", bounds.NUMBER, whole=True),
    NumberColumn("submit", bounds.SECONDS),
    NumberColumn("procs", bounds.CPUS, 1, whole=True),
    NumberColumn("runtime", bounds.SECONDS),
)


def read_urgent(path: Path, strict: bool) -> Loaded:
    """The urgent jobs of a CSV file with the columns job_id, submit, procs, runtime; ConfigError if it cannot be used.

    ``submit`` counts from time 0 of the workload that they are merged into. ``strict``: a malformed line is an error.
    """
    columns, report = understood(read_cells(path), _RULES, strict)
    jobs = urgent_workload(path.name, columns["job_id"], columns["submit"], columns["procs"], columns["runtime"])
    return Loaded(jobs, report)


def published(name: str) -> Workload:
    """The jobs that Agung et al. injected into sdsc-ds, lanl-cm5 or sx-ace; ConfigError for another name."""
    names = sorted(path.name.removesuffix("-urgent.csv") for path in _INPUTS.glob("*-urgent.csv"))
    if name not in names:
        raise ConfigError(f"no urgent jobs were published for {name!r}, only for {', '.join(names)}")
    return read_urgent(_INPUTS / f"{name}-urgent.csv", strict=True).workload


def with_urgent(jobs: Workload, urgent: Workload) -> Workload:
    """Both workloads merged; urgent jobs are renumbered if necessary."""
    return merged(jobs, replace(urgent, job_id=urgent.job_id + moved_up(jobs, urgent)))


def moved_up(jobs: Workload, urgent: Workload) -> int:
    """The offset of the numbers of all urgent jobs; 0 if none is the number of a job of the trace.

    The least power of ten above all numbers of the trace, so 7 becomes e.g. 1000007: urgent jobs can be distinguished,
    and both numbers can still be read.
    """
    taken = np.isin(urgent.job_id, jobs.job_id).any()
    return int(10 ** len(str(jobs.job_id.max()))) if taken else 0


def urgent_workload(name: str, job_id: Ints, submit: Floats, cpus: Ints, run: Floats) -> Workload:
    """Urgent jobs of one account, with exact limits."""
    count = len(job_id)
    return workload(
        name,
        submit,
        cpus,
        run,
        accounts=(ACCOUNT,),
        job_id=job_id,
        limit=run,
        urgent=np.ones(count, dtype=np.bool_),
        mode=np.full(count, PreemptMode.NEVER),
    )
