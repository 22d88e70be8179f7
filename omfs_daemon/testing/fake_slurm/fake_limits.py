"""The limits that the fake enforces, as Slurm does: counted over jobs that run or are suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from omfs_daemon.cluster.limits import Association, Qos, SiteLimits
from omfs_daemon.cluster.nodes import Partition
from omfs_daemon.testing.fake_slurm.fake_jobs import Record


class FakeLimits:
    """Those of ``site``; ``active``: the jobs that count."""

    def __init__(self, active: Callable[[], list[Record]], now: Callable[[], float]) -> None:
        self.site = SiteLimits()
        self._active = active
        self._now = now

    def reached(self, record: Record) -> str:
        """Slurm's word for the limit that keeps a job waiting, "" if none does: the throttle of its array; of a QOS
        GrpJobs, GrpTRES, MaxJobsPerUser, MaxTRESPerUser, and MaxTRESPerJob, of associations GrpJobs, GrpTRES, and
        MaxJobs, each of CPUs; and licenses that are reserved."""
        throttle, enforced = record.what.array_throttle, self.site.enforced or ()
        if throttle and sum(one.array_id == record.array_id for one in self._active()) >= throttle:
            return "JobArrayTaskLimit"
        bounds = [*self._of_qos(record), *self._of_associations(record)] if "limits" in enforced else []
        bounds += self._of_licenses(record)
        return next((word for word, most, used in bounds if most is not None and used > most), "")

    def reserved_nodes(self, record: Record) -> frozenset[str]:
        """Nodes that are reserved for others before its time limit would end it."""
        now = self._now()
        until = now + record.what.time_limit
        found = [one.nodes for one in self.site.reservations or () if one.end > now and one.start < until]
        return frozenset().union(*found)

    def _of_qos(self, record: Record) -> Iterator[Bound]:
        level: Qos | None = (self.site.qos or {}).get(record.what.qos)
        if level is None:
            return
        alike = [one for one in self._active() if one.what.qos == level.name]
        mine = [one for one in alike if one.uid == record.uid]
        each = level.by_user.get(record.uid)
        yield Bound("QOSGrpJobsLimit", level.limits.jobs, len(alike) + 1)
        yield Bound("QOSGrpCpuLimit", level.limits.tres.get("cpu"), _cpus(record, alike))
        yield Bound("QOSMaxCpuPerJobLimit", level.limits.job_tres.get("cpu"), _cpus(record, ()))
        yield Bound("QOSMaxJobsPerUserLimit", each.jobs if each else None, len(mine) + 1)
        yield Bound("QOSMaxCpuPerUserLimit", each.tres.get("cpu") if each else None, _cpus(record, mine))

    def _of_associations(self, record: Record) -> Iterator[Bound]:
        for association in self._chain(record):
            alike = [one for one in self._active() if association in self._chain(one)]
            yield Bound("AssocGrpJobsLimit", association.limits.jobs, len(alike) + 1)
            yield Bound("AssocGrpCpuLimit", association.limits.tres.get("cpu"), _cpus(record, alike))
            yield Bound("AssocMaxJobsLimit", association.own_jobs, len(alike) + 1)

    def _chain(self, record: Record) -> list[Association]:
        partition = record.partition or record.partitions[0]
        return list(self.site.chain(record.what.account, record.what.user, partition))

    def _of_licenses(self, record: Record) -> Iterator[Bound]:
        for name, count in record.licenses:
            known = (self.site.licenses or {}).get(name)
            if known is not None:
                used = sum(dict(one.licenses).get(name, 0) for one in self._active())
                yield Bound("Licenses", known.total - known.reserved, used + count)


class Bound(NamedTuple):
    """A limit by Slurm's word (``most``: None for none), and what would be used."""

    word: str
    most: int | None
    used: int


def partition_refuses(record: Record, partition: Partition) -> str:
    """Slurm's word for what of a partition keeps a job waiting, "" if nothing does."""
    account, qos = record.what.account, record.what.qos
    if not partition.up:
        return "PartitionInactive" if partition.state == "INACTIVE" else "PartitionDown"
    if account in partition.deny_accounts or (
        partition.allow_accounts is not None and account not in partition.allow_accounts
    ):
        return "AccountNotAllowed"
    if qos in partition.deny_qos or (partition.allow_qos is not None and qos not in partition.allow_qos):
        return "QOSNotAllowed"
    if record.what.time_limit > partition.max_time:
        return "PartitionTimeLimit"
    return "PartitionNodeLimit" if 0 < partition.max_nodes < record.request.nodes else ""


def _cpus(record: Record, others: Iterable[Record]) -> int:
    return record.request.cpus + sum(one.request.cpus for one in others)
