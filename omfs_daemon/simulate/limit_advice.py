"""Which time limits are asked far too high, and what lower ones would have done to the waits. Nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.errors import NothingFound
from omfs_daemon.simulate.comparison import Side
from omfs_daemon.simulate.engine.conventions import fitting_jobs
from omfs_daemon.simulate.results.measure import per_job, strict
from omfs_daemon.simulate.workload.workload import Workload

LEAST_JOBS = 10
"""Of fewer jobs that are alike nothing is said."""
MARGIN = 1.2
"""The limit that is shown is so many times the run time that 99 in 100 jobs do not exceed."""
_WORTH = 0.8
"""A limit above this part of the present one is not worth a change."""
_QUANTILES = (0.5, 0.99)


class LimitAdvice(NamedTuple):
    """The jobs of one user and name. Times in seconds.

    limit      the median of the limits that they asked for; ``p50``, ``p99``: of their run times
    suggested  ``MARGIN`` * p99 in whole minutes; None: their limits fit
    longer     how many of them ran longer than that, and would have needed more
    wait_before, wait_after  the mean wait of those with a limit above the suggested one, replayed with the limits asked
               for, and if everybody had asked for the suggested ones; None: nothing is suggested, or none was done
    """

    user: str
    name: str
    jobs: int
    limit: float
    p50: float
    p99: float
    suggested: float | None
    longer: int
    wait_before: float | None
    wait_after: float | None


class Advised(NamedTuple):
    """``rows``: what is most to be gained first, in CPU-seconds asked for too much; ``wait_before``, ``wait_after``:
    the mean wait of all jobs that were replayed; ``wider``: jobs that were not, for they are wider than the machine."""

    rows: tuple[LimitAdvice, ...]
    wait_before: float
    wait_after: float
    wider: int

    def as_json(self) -> dict[str, Any]:
        """For a strict JSON file: what there is no figure for is null."""
        found: dict[str, Any] = strict(
            {
                "wait_before": self.wait_before,
                "wait_after": self.wait_after,
                "wider": self.wider,
                "rows": [row._asdict() for row in self.rows],
            }
        )
        return found


class _Group(NamedTuple):
    """``jobs``: indices; ``excess``: CPU-seconds."""

    jobs: Ints
    advice: LimitAdvice
    excess: float


def advised_limits(side: Side, user: str | None) -> Advised:
    """Of this user's jobs, of everybody's if it is None; NothingFound if there are not enough that are alike, or none
    of the period fits on the machine.

    ``side``: the period, and the policy that it is replayed under, which takes limits for run times. A job that ran
    longer than the suggested limit is replayed with the limit that it needed, so both replays run the same work.
    """
    workload = side.scenario.workload
    groups = [group for group in _groups(workload, user) if group is not None]
    if not groups:
        whose = "" if user is None else f" of {user}"
        raise NothingFound(f"there are no {LEAST_JOBS} jobs{whose} of one name with a time limit in this period")
    fits = fitting_jobs(workload, side.scenario.machine.cpus)
    if not fits.any():
        raise NothingFound("no job of this period fits on the machine (--procs)")
    limits = workload.limit.copy()
    lowered: Bools = np.zeros(len(workload), dtype=np.bool_)
    for jobs, advice, _ in groups:
        if advice.suggested is not None:
            limits[jobs] = np.minimum(limits[jobs], np.maximum(advice.suggested, workload.run[jobs]))
            lowered[jobs] = limits[jobs] < workload.limit[jobs]
    before = _waits(side)
    after = before
    if lowered.any():
        scenario = replace(side.scenario, workload=replace(workload, limit=limits))
        after = _waits(Side(scenario, side.policy))
    ordered = sorted(groups, key=lambda group: -group.excess)
    rows = tuple(_with_waits(group, lowered, before, after) for group in ordered)
    return Advised(rows, float(np.nanmean(before)), float(np.nanmean(after)), int((~fits).sum()))


def _groups(workload: Workload, user: str | None) -> list[_Group | None]:
    chosen = np.isfinite(workload.limit) & (workload.limit > 0)
    if user is not None:
        mine = workload.users.index(user) if user in workload.users else -1
        chosen &= workload.user == mine
    at = np.flatnonzero(chosen)
    keys = workload.user[at] * len(workload.job_names) + workload.job_name[at]
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order], prepend=-1, append=-1))
    return [_group(workload, at[order[begin:end]]) for begin, end in pairwise(bounds.tolist())]


def _group(workload: Workload, jobs: Ints) -> _Group | None:
    if len(jobs) < LEAST_JOBS:
        return None
    runs = np.minimum(workload.run[jobs], workload.limit[jobs])
    p50, p99 = (float(value) for value in np.quantile(runs, _QUANTILES, method="inverted_cdf"))
    limit = float(np.median(workload.limit[jobs]))
    wanted = 60.0 * max(1, ceil(MARGIN * p99 / 60))
    suggested = wanted if wanted <= _WORTH * limit else None
    excess = 0.0 if suggested is None else np.maximum(workload.limit[jobs] - suggested, 0.0) @ workload.cpus[jobs]
    user, name = workload.users[workload.user[jobs[0]]], workload.job_names[workload.job_name[jobs[0]]]
    longer = 0 if suggested is None else int((runs > suggested).sum())
    return _Group(
        jobs, LimitAdvice(user, name, len(jobs), limit, p50, p99, suggested, longer, None, None), float(excess)
    )


def _waits(side: Side) -> Floats:
    """Seconds up to the first start; nan: never."""
    waits: Floats = per_job(side.policy.simulate(side.scenario))[0]
    return waits


def _with_waits(group: _Group, lowered: Bools, before: Floats, after: Floats) -> LimitAdvice:
    mine = group.jobs[lowered[group.jobs]]
    mine = mine[~np.isnan(before[mine]) & ~np.isnan(after[mine])]
    if not len(mine):
        return group.advice
    return group.advice._replace(wait_before=float(before[mine].mean()), wait_after=float(after[mine].mean()))
