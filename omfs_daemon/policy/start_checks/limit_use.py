"""What the jobs that run use of the limits of accounts, users, and QOS, counted from one observation.

Slurm counts a suspended job's resources as used, and not those of one that is completing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.nodes import Partition

JOBS = "jobs"
"""Stands beside the names of TRES for the number of jobs."""

Scope = tuple[str, ...]
"""What a limit is for: ``("qos", name)``, ``("qos user", name, uid)``, ``("qos account", name, account)``,
``("account", name)``, or ``("association", account, user, partition)``."""

Amounts = Counter[str]

_COUNTED = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED)


def amounts_of(allocations: Iterable[Allocation], licenses: Iterable[tuple[str, int]]) -> Amounts:
    """TRES of a job with these allocations; those that depend on the site (billing, gres) are left out."""
    found = Amounts({JOBS: 1})
    for _, cpus, memory in allocations:
        found["cpu"] += cpus
        found["mem"] += memory
        found["node"] += 1
    found.update({f"license/{name}": count for name, count in licenses})
    return found


class LimitUse:
    """The use of every scope, counted when it is first asked for, and changed by what is planned."""

    def __init__(self, jobs: Iterable[Job], limits: SiteLimits, partitions: Mapping[str, Partition]) -> None:
        self._jobs = jobs
        self._limits = limits
        self._partitions = partitions
        self._used: dict[Scope, Amounts] | None = None
        self._licenses_held: Amounts | None = None

    def of(self, scope: Scope) -> Amounts:
        return self._by_scope.get(scope, Amounts())

    def license(self, name: str) -> int:
        """How many of a license jobs hold; those that are completing still do."""
        return self._licenses[name]

    def add(self, job: Job, partition: str, amounts: Amounts, sign: int = 1) -> None:
        """A job will run there (or, with -1, no longer)."""
        used = self._by_scope
        for scope in self.scopes(job, partition):
            total = used.setdefault(scope, Amounts())
            for name, amount in amounts.items():
                total[name] += sign * amount
        for name, count in job.licenses:
            self._licenses[name] += sign * count

    def leave(self, job: Job) -> None:
        """A job that runs will leave its nodes."""
        self.add(job, job.partition, amounts_of(job.allocations, job.licenses), -1)

    def come_back(self, job: Job) -> None:
        """The opposite of ``leave``."""
        self.add(job, job.partition, amounts_of(job.allocations, job.licenses))

    def scopes(self, job: Job, partition: str) -> Iterator[Scope]:
        """All scopes in which a job in this partition counts."""
        own = self._partitions[partition].qos if partition in self._partitions else ""
        for qos in dict.fromkeys(filter(None, (own, job.qos))):
            yield ("qos", qos)
            yield ("qos user", qos, str(job.uid))
            yield ("qos account", qos, job.account)
        for association in self._limits.chain(job.account, job.user, partition):
            if association.user:
                yield ("association", association.account, association.user, association.partition)
            else:
                yield ("account", association.account)

    @property
    def _licenses(self) -> Amounts:
        if self._licenses_held is None:
            self._licenses_held = Amounts()
            for job in self._jobs:
                if job.licenses and job.state in (*_COUNTED, JobState.COMPLETING):
                    self._licenses_held.update(dict(job.licenses))
        return self._licenses_held

    @property
    def _by_scope(self) -> dict[Scope, Amounts]:
        if self._used is None:
            alike: dict[tuple[str, str, str, str], tuple[Job, Amounts]] = {}
            for job in self._jobs:
                if job.state in _COUNTED:
                    key = (job.account, job.user, job.partition, job.qos)
                    known = alike.get(key) or alike.setdefault(key, (job, Amounts()))
                    known[1].update(amounts_of(job.allocations, job.licenses))
            self._used = {}
            for job, amounts in alike.values():
                for scope in self.scopes(job, job.partition):
                    self._used.setdefault(scope, Amounts()).update(amounts)
        return self._used
