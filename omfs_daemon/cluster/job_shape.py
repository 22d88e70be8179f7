"""Which jobs are alike to Slurm: what it started for one of them it would start for the others."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import lru_cache
from hashlib import blake2s

from omfs_daemon.cluster.jobs import Job, JobRequest


def shape_of(job: Job) -> str:
    """A short text, the same for jobs of an account that request the same; it stays the same across processes, and
    whichever nodes are reserved."""
    request = job.request
    if job.kept_off:
        request = replace(request, excluded_nodes=request.excluded_nodes - job.kept_off)
    return _shape(job.account, job.qos, request, job.licenses, job.time_limit)


def shape_of_user(shape: str, user: str) -> str:
    """The same for jobs of a user that have this shape: for them Slurm's limits are the same, too."""
    return f"{shape} {user}"


@lru_cache(maxsize=4096)
def _shape(
    account: str, qos: str, request: JobRequest, licenses: tuple[tuple[str, int], ...], time_limit: float
) -> str:
    fields = [sorted(value) if isinstance(value, frozenset) else value for value in astuple(request)]
    return blake2s(repr((account, qos, fields, licenses, time_limit)).encode(), digest_size=10).hexdigest()
