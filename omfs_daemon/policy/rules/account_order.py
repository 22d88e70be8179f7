"""Which waiting non-preemptible jobs fit into their accounts' entitlements: in order, with backfill. Pure.

Without an order, a large job would wait behind a stream of small ones of its own account for as long as they come. So
the first job of an account that does not fit gets a reservation, as in EASY backfill: the earliest time at which it
will fit if all jobs before it use their time limits. A later job of the account passes it only if it ends by then, or
if it leaves enough CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from omfs_daemon.policy.rules.laws import add_cpus, admits_non_preemptible

_UNLIMITED = 365 * 86400.0  # as Slurm takes a job without a time limit to run


class AccountJob(NamedTuple):
    """``tasks`` equal jobs with so many CPUs each; ``path``: the entities at which they count, the leaf first.

    ``reserves``: it could start if it fitted, so that others must not delay it.
    """

    path: tuple[int, ...]
    cpus: int
    time_limit: float = inf
    tasks: int = 1
    reserves: bool = True


class AccountUse(NamedTuple):
    """CPUs in use, until a time at most."""

    path: tuple[int, ...]
    cpus: int
    until: float


def use_until(now: float, time_limit: float, run_time: float = 0.0) -> float:
    """When a job that has run so long will have ended at the latest."""
    return now + max(0.0, min(time_limit, _UNLIMITED) - run_time)


def admit_in_order(
    waiting: Iterable[AccountJob], in_use: Iterable[AccountUse], entitled: Sequence[int], now: float
) -> Iterator[int]:
    """For each of the waiting jobs, which come in order: how many of its tasks may start now.

    A job that no entitlement on its path could ever hold waits, and gets no reservation.
    """
    uses = list(in_use)
    used = [0] * len(entitled)
    for path, cpus, _ in uses:
        add_cpus(used, path, cpus)
    by_top: dict[int, dict[int, _Reservation]] = {}
    for job in waiting:
        leaf, until = job.path[0], use_until(now, job.time_limit)
        ends = until if job.time_limit < _UNLIMITED else inf  # it passes nobody else who has no limit
        reservations = by_top.setdefault(job.path[-1], {})  # of leaves that share an entity with this one
        admitted = 0
        while admitted < job.tasks and admits_non_preemptible(used, entitled, job.path, job.cpus):
            if any(other.is_delayed_by(job, ends) for other in reservations.values()):
                break
            for other in reservations.values():
                other.take(job, ends)
            add_cpus(used, job.path, job.cpus)
            uses.append(AccountUse(job.path, job.cpus, until))
            admitted += 1
        is_possible = all(entitled[index] >= job.cpus for index in job.path)
        if admitted < job.tasks and job.reserves and leaf not in reservations and is_possible:
            reservations[leaf] = _Reservation(job, uses, used, entitled)
        yield admitted


class _Reservation:
    """When a job will fit, and how many CPUs it leaves at each entity of its path from then on."""

    def __init__(
        self, job: AccountJob, uses: Iterable[AccountUse], used: Sequence[int], entitled: Sequence[int]
    ) -> None:
        free = {index: entitled[index] - used[index] for index in job.path}
        self._at = -inf
        for use in sorted((use for use in uses if not free.keys().isdisjoint(use.path)), key=lambda use: use.until):
            if use.until > self._at and all(cpus >= job.cpus for cpus in free.values()):
                break
            self._at = use.until
            for index in free.keys() & set(use.path):
                free[index] += use.cpus
        self._left = {index: cpus - job.cpus for index, cpus in free.items()}

    def is_delayed_by(self, job: AccountJob, ends: float) -> bool:
        return ends > self._at and any(self._left.get(index, job.cpus) < job.cpus for index in job.path)

    def take(self, job: AccountJob, ends: float) -> None:
        """The other job starts now."""
        if ends > self._at:
            for index in self._left.keys() & set(job.path):
                self._left[index] -= job.cpus
