"""Which jobs may be preempted for which; checked by the planner, and again by the validator."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.accounts import AccountNode
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.arrays.job_arrays import Floats, start_time
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.arrays.usage import Usage
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.account_paths import path_sides
from omfs_daemon.policy.rules.classes import JobClass, Rules
from omfs_daemon.policy.victims.need import ResourceNeed


def running_since(job: Job, history: PreemptionHistory) -> float:
    """When the present uninterrupted run of the job began."""
    start = start_time(job)
    return max(start, history.running_since.get(job.ref, start))


def is_mature(job: Job, job_class: JobClass, history: PreemptionHistory, now: float) -> bool:
    """Whether the job has run uninterrupted for its quantum (OMFS, section II)."""
    return bool(laws.latest_mature_start(now, grown_quantum(job, job_class, history)) >= running_since(job, history))


def grown_quantum(job: Job, job_class: JobClass, history: PreemptionHistory) -> float:
    """The quantum, doubled with each preemption of the job, up to its time limit: every job ends, however often others
    take its CPUs."""
    doublings = min(history.preemption_counts.get(job.ref, 0), _MOST_DOUBLINGS)
    return max(job_class.quantum, min(job_class.quantum * 2.0**doublings, job.time_limit))


_MOST_DOUBLINGS = 32
"""Beyond any time limit, and still a number."""


def has_preemptions_left(ref: str, history: PreemptionHistory, rules: Rules, now: float) -> bool:
    """Whether the job may be preempted once more for one that is not urgent."""
    if history.set_apart.get(ref, 0.0) > now:
        return False
    recent = [at for at in history.preemption_times.get(ref, ()) if laws.counts_in_hour(at, now)]
    return len(recent) < rules.max_preemptions_per_hour


def may_take_all(taker: AccountNode, cpus: int, givers: Iterable[tuple[AccountNode, int]], usage: Usage) -> bool:
    """Whether jobs of these leaves, with so many CPUs, may all be preempted for a job of ``cpus`` CPUs."""
    trial = list(usage.all)
    laws.add_cpus(trial, taker.path, cpus)
    ordered = _smallest_first(givers)
    both = [path_sides(taker.path, leaf.path) for leaf, _ in ordered]
    return laws.takes_fairly(
        trial,
        usage.entitled,
        [side.taker for side in both],
        [side.givers for side in both],
        [leaf.path for leaf, _ in ordered],
        [cpus for _, cpus in ordered],
    )


def give_way_to_own(need: ResourceNeed, leaves: Ints, submitted: Floats) -> Bools:
    """Which jobs (by the index of the leaf, and the submit time) give way to a job of their own account."""
    gives: Bools = (leaves == need.leaf.index) & (submitted > need.own_since)
    return gives


def are_borrowers(givers: Iterable[tuple[AccountNode, int]], usage: Usage) -> bool:
    """Whether all of these jobs belong to accounts above their entitlement, each when its turn comes."""
    ordered = _smallest_first(givers)
    return laws.takes_from_borrowers(
        list(usage.all), usage.entitled, [leaf.index for leaf, _ in ordered], [cpus for _, cpus in ordered]
    )


def _smallest_first(givers: Iterable[tuple[AccountNode, int]]) -> list[tuple[AccountNode, int]]:
    return sorted(givers, key=lambda giver: giver[1])
