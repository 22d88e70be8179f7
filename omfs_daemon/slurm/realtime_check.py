"""Check what real-time classes promise against what Slurm and the preemption methods allow. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.slurm.settings_check import Finding, Level

DECIDE_AND_START = 5.0
"""Seconds besides the preemption itself: to notice, decide, and have Slurm start the job."""


class Promise(NamedTuple):
    """Of a real-time class. ``partitions``: empty for all; ``act_at``: the greatest of its categories."""

    name: str
    partitions: Sequence[str]
    bound: float
    act_at: float


class SlowestMethod(NamedTuple):
    """Of those by which jobs may be preempted; ``seconds``: for the memory of a whole node."""

    name: str
    seconds: float


def realtime_findings(
    promises: Sequence[Promise], partitions: Sequence[Partition], slowest: SlowestMethod | None
) -> list[Finding]:
    """One for each class: from which time limit on its bound is safe, and which jobs have none. ``slowest``: None if no
    job may be preempted."""
    return [_promise(promise, partitions, slowest) for promise in promises]


def _promise(promise: Promise, partitions: Sequence[Partition], slowest: SlowestMethod | None) -> Finding:
    subject = f"real-time class {promise.name}"
    here = [one for one in partitions if not promise.partitions or one.name in promise.partitions]
    if slowest is None:
        what = "no class has methods: nobody is preempted for it, so its bound is kept only where nodes are idle"
        return Finding(Level.WARN, subject, what, "methods or default in the classes of regular jobs")
    margin = promise.bound - promise.act_at
    if margin <= 0:
        what = f"acts at its bound of {promise.bound:g}: a job that starts by a preemption is too late"
        return Finding(Level.WARN, subject, what, "an act_at below slowdown_bound")
    least = (slowest.seconds + DECIDE_AND_START) / margin
    what = (
        f"a bound of {promise.bound:g} is safe for time limits from {ceil(least / 60)} min on: {slowest.name} may take "
        f"{slowest.seconds:.0f} s, and {margin:.0%} of the limit are left for it"
    )
    never = [one.name for one in here if one.limit_of_others == inf]
    short = [one.name for one in here if one.max_time < least]
    wrong, fixes = [], []
    if never:
        wrong.append(f"jobs without a time limit are never due in {', '.join(never)}")
        fixes.append(f"DefaultTime for {', '.join(never)}")
    if short:
        wrong.append(f"no job may have so long a limit in {', '.join(short)}")
        fixes.append("a lower act_at, or a faster method")
    return Finding(Level.WARN if wrong else Level.OK, subject, "; ".join([what, *wrong]), "; ".join(fixes))
