"""Urgent jobs that a trace does not have: from a list, or injected at busy hours (Agung et al. 2021, section III-B)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.laws import HOUR
from omfs_daemon.simulate import bounds
from omfs_daemon.simulate.outcome import Outcome
from omfs_daemon.simulate.readers.cells import Number, read_cells, understood
from omfs_daemon.simulate.readers.loaded import Loaded
from omfs_daemon.simulate.timeline import held_units, means, steps
from omfs_daemon.simulate.workload import Floats, Ints, Way, Workload, merged, workload

ACCOUNT = "urgent"

# CPUs and seconds of the tsunami simulations that are injected (Table 1).
SIZES = ((128, 600.0), (256, 390.0), (512, 240.0))

_HOURS_OF_MONTH = 30 * 24
_FIRST_ID = 1_000_000
_INPUTS = Path(__file__).parent / "inputs"
_RULES = (
    Number("job_id", bounds.NUMBER, whole=True),
    Number("submit", bounds.SECONDS),
    Number("procs", bounds.CPUS, 1, whole=True),
    Number("runtime", bounds.SECONDS),
)


def read_urgent(path: Path, strict: bool) -> Loaded:
    """The urgent jobs of a CSV file with the columns job_id, submit, procs, runtime; ConfigError if it cannot be used.

    ``submit`` counts from time 0 of the workload that they are merged into. ``strict``: a malformed line is an error.
    """
    columns, report = understood(read_cells(path), _RULES, strict)
    jobs = _urgent(path.name, columns["job_id"], columns["submit"], columns["procs"], columns["runtime"])
    return Loaded(jobs, report)


def published(name: str) -> Workload:
    """The jobs that Agung et al. injected into sdsc-ds, lanl-cm5 or sx-ace; ConfigError for another name."""
    names = sorted(path.name.removesuffix("-urgent.csv") for path in _INPUTS.glob("*-urgent.csv"))
    if name not in names:
        raise ConfigError(f"no urgent jobs were published for {name!r}, only for {', '.join(names)}")
    return read_urgent(_INPUTS / f"{name}-urgent.csv", strict=True).workload


def with_urgent(jobs: Workload, urgent: Workload) -> Workload:
    """Both together; urgent jobs are renumbered if they must be."""
    return merged(jobs, replace(urgent, job_id=urgent.job_id + moved_up(jobs, urgent)))


def moved_up(jobs: Workload, urgent: Workload) -> int:
    """What is added to the numbers of all urgent jobs; 0 if none is the number of a job of the trace.

    The least power of ten above all numbers of the trace, so 7 becomes e.g. 1000007: urgent jobs are told apart, and
    both numbers can still be read.
    """
    taken = np.isin(urgent.job_id, jobs.job_id).any()
    return int(10 ** len(str(jobs.job_id.max()))) if taken else 0


def injected(undisturbed: Outcome, seed: int, *, threshold: float = 0.75) -> Workload:
    """Urgent jobs at busy hours of a run without them: one in each month that has one, at random.

    A busy hour is one over which the mean utilisation was at least ``threshold``, before the last job came; a month
    has 30 days. Sizes are drawn from ``SIZES``, those that the machine can hold. ConfigError if there is no such hour
    or size.
    """
    machine, generator = undisturbed.machine, np.random.default_rng(seed)
    sizes = [size for size in SIZES if size[0] <= machine.cpus]
    if not sizes:
        raise ConfigError(f"urgent jobs need a machine of at least {SIZES[0][0]} CPUs, not {machine.cpus}")
    busy = np.flatnonzero(hourly_utilisation(undisturbed) >= threshold)
    if not len(busy):
        raise ConfigError(f"no urgent job is injected: utilisation is below {threshold:.0%} at every hour")
    months = np.split(busy, np.flatnonzero(np.diff(busy // _HOURS_OF_MONTH)) + 1)
    hours = np.array([generator.choice(month) for month in months])
    drawn = np.array(sizes)[generator.integers(len(sizes), size=len(months))]
    return _urgent(
        "injected", _FIRST_ID + np.arange(len(months)), hours * HOUR, drawn[:, 0].astype(np.int64), drawn[:, 1]
    )


def hourly_utilisation(outcome: Outcome) -> Floats:
    """Share of the machine that was held, for each hour from time 0 until the last job came."""
    segments, machine = outcome.segments, outcome.machine
    hours = int(outcome.workload.submit[-1] // HOUR) if len(outcome.workload) else 0
    held = steps(segments.begin, segments.end, held_units(outcome)[segments.job])
    utilisation: Floats = means(held, np.arange(hours + 1, dtype=np.float64) * HOUR) / (machine.nodes or machine.cpus)
    return utilisation


def _urgent(name: str, job_id: Ints, submit: Floats, cpus: Ints, run: Floats) -> Workload:
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
        way=np.full(count, Way.NEVER),
    )
