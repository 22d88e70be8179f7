"""Who may be stopped for whom. The planner asks before it suggests, the safety gate asks again."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.rules import laws
from omfs_daemon.cluster.accounts import Entity
from omfs_daemon.policy.rules.account_paths import sides
from omfs_daemon.policy.arrays.job_arrays import started
from omfs_daemon.policy.rules.classes import JobClass
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.arrays.usage import Usage


def running_since(job: Job, ledger: Ledger) -> float:
    """Since when the job has run uninterrupted."""
    start = started(job)
    return max(start, ledger.running_since.get(job.ref, start))


def is_mature(job: Job, job_class: JobClass, ledger: Ledger, now: float) -> bool:
    """Whether the job has run uninterrupted for its quantum (OMFS, section II)."""
    return bool(laws.latest_mature_start(now, job_class.quantum) >= running_since(job, ledger))


def has_stops_left(ref: str, ledger: Ledger, rules: Rules, now: float) -> bool:
    recent = [at for at in ledger.stop_times.get(ref, ()) if laws.counts_in_hour(at, now)]
    return len(recent) < rules.max_stops_per_hour


def takes_fairly(taker: Entity, cpus: int, givers: Iterable[tuple[Entity, int]], usage: Usage) -> bool:
    """Whether jobs of these leaves, with so many CPUs, may all be taken for a job of ``cpus`` CPUs."""
    trial = list(usage.all)
    laws.add(trial, taker.path, cpus)
    in_turn = _smallest_first(givers)
    both = [sides(taker.path, leaf.path) for leaf, _ in in_turn]
    return laws.takes_fairly(
        trial,
        usage.entitled,
        [side.taker for side in both],
        [side.givers for side in both],
        [leaf.path for leaf, _ in in_turn],
        [cpus for _, cpus in in_turn],
    )


def takes_from_borrowers(givers: Iterable[tuple[Entity, int]], usage: Usage) -> bool:
    """Whether all of these jobs are of accounts above their entitlement, each when its turn comes."""
    in_turn = _smallest_first(givers)
    return laws.takes_from_borrowers(
        list(usage.all), usage.entitled, [leaf.index for leaf, _ in in_turn], [cpus for _, cpus in in_turn]
    )


def _smallest_first(givers: Iterable[tuple[Entity, int]]) -> list[tuple[Entity, int]]:
    return sorted(givers, key=lambda giver: giver[1])
