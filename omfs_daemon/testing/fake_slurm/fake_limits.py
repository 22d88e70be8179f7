"""The limits that the fake enforces, as Slurm does: counted over jobs that run or are suspended."""

from __future__ import annotations

from collections.abc import Iterable

from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.testing.fake_slurm.fake_jobs import Record


def limit_reached(record: Record, active: Iterable[Record], site: SiteLimits) -> str:
    """Slurm's word for the limit that keeps a job waiting, "" if none does: the throttle of its array, and of a QOS
    GrpJobs, GrpTRES of CPUs, MaxJobsPerUser, MaxTRESPerUser of CPUs, and MaxTRESPerJob of CPUs."""
    running = list(active)
    throttle = record.what.array_throttle
    if throttle and sum(one.array_id == record.array_id for one in running) >= throttle:
        return "JobArrayTaskLimit"
    level = (site.qos or {}).get(record.what.qos)
    if level is None:
        return ""
    alike = [one for one in running if one.what.qos == level.name]
    mine = [one for one in alike if one.uid == record.uid]
    each = level.by_user.get(record.uid)
    for word, most, used in (
        ("QOSGrpJobsLimit", level.limits.jobs, len(alike) + 1),
        ("QOSGrpCpuLimit", level.limits.tres.get("cpu"), _cpus(record, alike)),
        ("QOSMaxCpuPerJobLimit", level.limits.job_tres.get("cpu"), _cpus(record, ())),
        ("QOSMaxJobsPerUserLimit", each.jobs if each else None, len(mine) + 1),
        ("QOSMaxCpuPerUserLimit", each.tres.get("cpu") if each else None, _cpus(record, mine)),
    ):
        if most is not None and used > most:
            return word
    return ""


def _cpus(record: Record, others: Iterable[Record]) -> int:
    return record.request.cpus + sum(one.request.cpus for one in others)
