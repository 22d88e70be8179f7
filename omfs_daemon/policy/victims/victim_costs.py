"""What preempting running jobs for a real-time job costs (Nickolay et al. 2021, section 6.3, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.policy.arrays.job_arrays import Floats, RunningAllocations, cpus_held
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.realtime_terms import VictimCost, cost_on_terms
from omfs_daemon.policy.rules.slowdown_laws import (
    CHECKPOINT_UNIT,
    NARROW_SHORT,
    NEARLY_DONE_FACTOR,
    NEARLY_DONE_SECONDS,
    WIDE_SHORT,
)
from omfs_daemon.policy.victims.need import RealtimeNeed


class VictimCosts(NamedTuple):
    """By candidate: ``total``, what preempting it by the method that ``pick`` chooses costs, and whether its slowdown
    allows it. ``on_nodes``: their allocations, by node, and there by cost per CPU; ``shares``: what each allocation
    costs, if a job's cost is spread over its CPUs."""

    pick: Callable[[int], str]
    total: Floats
    is_eligible: Bools
    on_nodes: RunningAllocations
    shares: Floats


def cost_of_victim(job: Job, need: RealtimeNeed, rules: Rules, outlay: float) -> VictimCost:
    """What preempting this running job costs; ``outlay``: in seconds, as estimated for the method."""
    cpus = cpus_held(job)
    return cost_on_terms(
        need.terms,
        rules.job_size.category(cpus, job.time_limit, need.machine_cpus),
        cpus=cpus,
        submit=need.waits_since.get(job.ref, job.submit),
        limit=job.time_limit,
        expected=need.remaining.whole_run(job),
        run_seconds=job.run_time,
        outlay=outlay,
        now=need.now,
    )


def costs_of_victims(
    need: RealtimeNeed,
    rules: Rules,
    cpus: Ints,
    submit: Floats,
    limit: Floats,
    expected: Floats,
    run_seconds: Floats,
    outlay: Floats,
) -> tuple[Floats, Bools]:
    """The same of many jobs at once: ``total`` and ``is_eligible`` of each; ``submit``: or since when it waits, as
    above."""
    weights = need.terms.weights
    is_wide = cpus * 100.0 > rules.job_size.narrow_percent * need.machine_cpus
    category = np.where(is_wide, WIDE_SHORT, NARROW_SHORT) + (limit > rules.job_size.short_seconds)
    is_ending = np.maximum(0.0, expected - run_seconds) <= np.minimum(expected / 4.0, NEARLY_DONE_SECONDS)
    total: Floats = (
        cpus
        * np.log2(2.0 + _slowdowns(submit, expected, run_seconds, need.now)) ** weights.slowdown
        * (1.0 + outlay / CHECKPOINT_UNIT) ** weights.checkpoint
        * np.where(is_ending, NEARLY_DONE_FACTOR, 1.0) ** weights.remaining
    )
    return total, _slowdowns(submit, limit, run_seconds, need.now) <= np.array(need.terms.victim_max)[category]


def _slowdowns(submit: Floats, length: Floats, run_seconds: Floats, now: float) -> Floats:
    """Of running jobs that run so long in all; 1 where that is not limited."""
    is_limited = np.isfinite(length)
    known = np.where(is_limited, length, 1.0)
    found: Floats = np.where(is_limited, np.maximum(1.0, (known + now - run_seconds - submit) / known), 1.0)
    return found
