"""Who may be stopped for whom. The planner asks before it suggests, the safety gate asks again."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.accounts import Entity, may_take
from omfs_daemon.policy.crowd import started
from omfs_daemon.policy.rules import Rules
from omfs_daemon.policy.usage import Usage

HOUR = 3600.0


def running_since(job: Job, ledger: Ledger) -> float:
    """Since when the job has run uninterrupted."""
    start = started(job)
    return max(start, ledger.running_since.get(job.ref, start))


def is_mature(job: Job, ledger: Ledger, rules: Rules, now: float) -> bool:
    """Whether the job has run uninterrupted for its quantum (OMFS, section II)."""
    return bool(latest_mature_start(rules, now) >= running_since(job, ledger))


def latest_mature_start(rules: Rules, now: float) -> float:
    """A job that runs since then or longer has run for its quantum."""
    return now - rules.quantum


def has_stops_left(ref: str, ledger: Ledger, rules: Rules, now: float) -> bool:
    recent = [at for at in ledger.stop_times.get(ref, ()) if at > now - HOUR]
    return len(recent) < rules.max_stops_per_hour


def takes_fairly(taker: Entity, cpus: int, givers: Iterable[tuple[Entity, int]], usage: Usage) -> bool:
    """Whether jobs of these leaves, with so many CPUs, may all be taken for a job of ``cpus`` CPUs.

    In whatever order helps: what counts is that each giver is above its entitlement when its turn comes. The
    smallest jobs go first, since the last one may bring its account below.
    """
    trial = list(usage.all)
    for index in taker.path:
        trial[index] += cpus
    left = sorted(givers, key=lambda giver: giver[1])
    while left:
        allowed = next((g for g in left if may_take(trial, usage.entitled, taker.path, g[0].path)), None)
        if allowed is None:
            return False
        for index in allowed[0].path:
            trial[index] -= allowed[1]
        left.remove(allowed)
    return True


def takes_from_borrowers(givers: Iterable[tuple[Entity, int]], usage: Usage) -> bool:
    """Whether all of these jobs are of accounts above their entitlement, each when its turn comes."""
    trial = list(usage.all)
    for leaf, cpus in sorted(givers, key=lambda giver: giver[1]):
        if trial[leaf.index] <= usage.entitled[leaf.index]:
            return False
        trial[leaf.index] -= cpus
    return True
