"""A substitute for the log of Tachyon2, which is not published: two years of generated jobs on 3,200 nodes.

Sizes, run times, and the course of a day are of the model of Lublin and Feitelson (``simulate.workload.generate``), run
times scaled to the published mean. Each month asks for equally many node hours, its jobs wide or not by a given share,
and how many node hours is sought by bisection, so that the queue as Tachyon2 had it uses as much of the machine as
published (Yoon et al. 2020, section 2.4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Bools, Floats, Ints
from omfs_daemon.simulate.kernels.conservative_kernel import conservative_kernel
from omfs_daemon.simulate.kernels.size_first_kernel import size_first_kernel
from omfs_daemon.simulate.policies.run_predictor import nothing_learned
from omfs_daemon.simulate.workload.generate import day_weights, model_run_times, sizes, typed_limits

HOUR, DAY = 3600.0, 86400.0
CORES_EACH = 8
LARGE_NODES = 250
MEAN_RUN = 6.0 * HOUR
"""Mean turnaround less mean wait, as published."""
USED = 0.8569
USED_WITHIN = 0.005

_AHEAD = DAY
"""A job of the whole machine counts as having waited so much longer: the published weight of sizes has no number."""
_OVERESTIMATE = 4.0
_MODEL_NODES = 128
_HALVINGS = 12
_MOST_JOBS = 30_000
"""Drawn for each month: three times as many as fill the machine."""


class SubstituteModel(NamedTuple):
    """``wide``: share of jobs of more than ``LARGE_NODES`` nodes in the months of the hump, 11 to 15; in the others a
    ``usual`` share, which grows from 0.7 to 1.3 times that."""

    wide: float = 0.04
    usual: float = 0.002
    nodes: int = 3200
    months: int = 24
    month: float = 365 * DAY / 12

    @property
    def span(self) -> float:
        return self.months * self.month

    def shares(self) -> Floats:
        """Of wide jobs, by month."""
        month = np.arange(self.months)
        return np.where((month >= 10) & (month < 15), self.wide, self.usual * (0.7 + 0.6 * month / self.months))


class SubstituteJobs(NamedTuple):
    """One entry per job, in order of submission; seconds and whole nodes."""

    submit: Floats
    nodes: Ints
    run: Floats
    limit: Floats


class Substitute(NamedTuple):
    """``load``: node hours asked for over those of the machine; ``start``: in the queue as Tachyon2 had it."""

    model: SubstituteModel
    jobs: SubstituteJobs
    load: float
    start: Floats


class _Pool(NamedTuple):
    """More jobs than a month has, for each month."""

    nodes: list[Ints]
    run: list[Floats]


def substitute(model: SubstituteModel, seed: int) -> Substitute:
    """The jobs whose load makes the queue without backfilling use ``USED`` of the machine, or as much as it can."""
    pool = _pool(model, seed)
    low, high = 0.3, 1.3
    found = _at_load(model, pool, USED, seed)
    for _ in range(_HALVINGS):
        used = used_share(model, found.jobs, found.start)
        if abs(used - USED) < USED_WITHIN / 10:
            break
        low, high = (found.load, high) if used < USED else (low, found.load)
        found = _at_load(model, pool, (low + high) / 2, seed)
    return found


def at_load(model: SubstituteModel, load: float, seed: int) -> Substitute:
    """The same jobs, so many that they ask for this part of the machine."""
    return _at_load(model, _pool(model, seed), load, seed)


def conservatively(found: Substitute) -> Floats:
    """Starts of the same jobs with conservative backfilling, first come, first served."""
    jobs = found.jobs
    nothing = nothing_learned(len(jobs.submit))
    return conservative_kernel(jobs.submit, jobs.nodes, jobs.run, jobs.limit, found.model.nodes, True, nothing)[0]


def used_share(model: SubstituteModel, jobs: SubstituteJobs, start: Floats) -> float:
    """Of the node seconds of the period."""
    held = np.clip(start + jobs.run, 0, model.span) - np.clip(start, 0, model.span)
    return float((held * jobs.nodes).sum() / (model.nodes * model.span))


def undone(found: Substitute) -> Floats:
    """Seconds that the whole machine would need, at the begin and at the end of each month, for what was asked for and
    has not run.

    What a month leaves idle is one less what it asks for plus how much this grows, in parts of the month: where every
    month asks for as much, idle cores follow large jobs only as far as the queue grows with them.
    """
    model, jobs = found.model, found.jobs
    edges = np.arange(model.months + 1) * model.month
    work = jobs.nodes * jobs.run
    asked = np.concatenate(((0.0,), np.cumsum(work)))[np.searchsorted(jobs.submit, edges)]
    done = [(np.clip(edge - found.start, 0, jobs.run) * jobs.nodes).sum() for edge in edges]
    left: Floats = (asked - np.array(done)) / model.nodes
    return left


def _at_load(model: SubstituteModel, pool: _Pool, load: float, seed: int) -> Substitute:
    jobs = _jobs(model, pool, load, seed)
    ahead = _AHEAD * jobs.nodes / model.nodes
    start = size_first_kernel(jobs.submit, jobs.nodes, jobs.run, ahead, model.nodes)
    return Substitute(model, jobs, load, start)


def _pool(model: SubstituteModel, seed: int) -> _Pool:
    """Months have random numbers of their own, so that another load or share keeps the others' jobs."""
    nodes, run = [], []
    for month, share in enumerate(model.shares().tolist()):
        size, length, kind = (np.random.default_rng(child) for child in _seeds(seed, month)[:3])
        drawn = sizes(8 * _MOST_JOBS, model.nodes, size)
        is_wide: Bools = drawn > LARGE_NODES * model.nodes / 3200
        chosen = np.where(
            kind.random(_MOST_JOBS) < share,
            kind.choice(drawn[is_wide], _MOST_JOBS),
            kind.choice(drawn[~is_wide], _MOST_JOBS),
        )
        nodes.append(chosen)
        run.append(model_run_times(np.minimum(chosen, _MODEL_NODES), length))
    mean = float(np.concatenate(run).mean())
    return _Pool(nodes, [np.ceil(one * MEAN_RUN / mean) for one in run])


def _jobs(model: SubstituteModel, pool: _Pool, load: float, seed: int) -> SubstituteJobs:
    submit, nodes, run, limit = [], [], [], []
    for month, (wide, long) in enumerate(zip(pool.nodes, pool.run, strict=True)):
        arrival, over = (np.random.default_rng(child) for child in _seeds(seed, month)[3:])
        asked = load * model.nodes * model.month
        count = min(int(np.searchsorted(np.cumsum(wide * long), asked)) + 1, len(wide))
        times = np.sort(arrival.random(len(wide))[:count])
        submit.append(month * model.month + _within_days(times * model.month))
        nodes.append(wide[:count])
        run.append(long[:count])
        limit.append(typed_limits(long * over.uniform(1.0, _OVERESTIMATE, len(wide)))[:count])
    time = np.concatenate(submit)
    order = np.argsort(time, kind="stable")
    return SubstituteJobs(
        time[order], np.concatenate(nodes)[order], np.concatenate(run)[order], np.concatenate(limit)[order]
    )


def _within_days(times: Floats) -> Floats:
    """Times of a clock that runs evenly as those of one by which few jobs come at night."""
    weights = day_weights()
    edges = np.linspace(0.0, DAY, len(weights) + 1)
    points = np.concatenate(((0.0,), np.cumsum(weights))) * (DAY / weights.sum())
    day, rest = np.divmod(times, DAY)
    moved: Floats = np.rint(day * DAY + np.interp(rest, points, edges))
    return moved


def _seeds(seed: int, month: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence((seed, month)).spawn(5)
