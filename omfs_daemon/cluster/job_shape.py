"""Which jobs are alike to Slurm: what it started for one of them it would start for the others."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from hashlib import blake2s

from omfs_daemon.cluster.jobs import Job, JobRequest


def shape_of(job: Job) -> str:
    """A short text, the same for jobs of an account that request the same; it stays the same across processes, and
    whichever nodes are reserved or doubted. Its last part tells what it requests of nodes (``request_in``)."""
    whose = (job.account, job.qos, job.licenses, job.time_limit)
    return f"{_digest(whose)}.{shape_of_request(job.request, job.kept_off)}"


def shape_of_user(shape: str, user: str) -> str:
    """The same for jobs of a user that have this shape: for them Slurm's limits are the same, too."""
    return f"{shape} {user}"


def shape_of_request(request: JobRequest, kept_off: frozenset[str] = frozenset()) -> str:
    """The same for all jobs that request the same of nodes, whosever they are; ``kept_off`` as in ``Job``."""
    if kept_off:
        request = _with(request, kept_off)
    return _shape(request)


def request_in(shape: str) -> str:
    """The ``shape_of_request`` of jobs of this shape."""
    return shape.partition(".")[2]


def shape_on_node(request: str, node: str) -> str:
    """Jobs of such a ``shape_of_request`` on a node."""
    return f"{request} {node}"


def _with(request: JobRequest, kept_off: frozenset[str]) -> JobRequest:
    parts = tuple(_with(part, kept_off) for part in request.parts)
    return replace(request, excluded_nodes=request.excluded_nodes - kept_off, parts=parts)


@lru_cache(maxsize=4096)
def _shape(request: JobRequest) -> str:
    return _digest(_values(request))


def _values(request: JobRequest) -> list[object]:
    values = [getattr(request, field.name) for field in fields(request) if field.name != "parts"]
    shown: list[object] = [sorted(value) if isinstance(value, frozenset) else value for value in values]
    return [*shown, *(_values(part) for part in request.parts)]


@lru_cache(maxsize=4096)
def _digest_of(text: str) -> str:
    return blake2s(text.encode(), digest_size=10).hexdigest()


def _digest(value: object) -> str:
    return _digest_of(repr(value))
