"""What an ended job teaches: its features, its run time, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.predict.features import JobFeatures, folded_name, stored_name
from omfs_daemon.predict.prediction import HowEnded

_HOW = {
    **dict.fromkeys(("COMPLETED", "FAILED", "OUT_OF_MEMORY"), HowEnded.BY_ITSELF),
    "TIMEOUT": HowEnded.AT_LIMIT,
    **dict.fromkeys(("CANCELLED", "DEADLINE", "REVOKED"), HowEnded.CANCELLED),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"), HowEnded.NODE_FAILED),
}


class JobEnd(NamedTuple):
    """The end of one run of a job; ``job`` and ``start`` (seconds since the epoch) tell it from all others.

    run  seconds without suspensions, and with those of earlier runs from whose checkpoints the job went on
    how  None: the job came back into the queue
    """

    job: int
    start: float
    ended: float
    features: JobFeatures
    run: float
    how: HowEnded | None


def how_ended(state: str) -> HowEnded | None:
    """By Slurm's name of the state; None if the job ran, or will run, once more (PREEMPTED, REQUEUED) or has not
    ended."""
    return _HOW.get(state)


def features_of(job: Job, keep_names: bool = False) -> JobFeatures:
    """Of a job as Slurm shows it; a waiting one counts in the first of its partitions."""
    request = job.request
    command, name = _stored_names(job.name, keep_names)
    return JobFeatures(
        user=job.user,
        account=job.account,
        partition=job.partition.partition(",")[0],
        qos=job.qos,
        command=command,
        name=name,
        cpus=request.cpus,
        nodes=max(len(job.allocations), request.nodes, 1),
        gres=gres_text((name, count * max(1, request.nodes)) for name, count in request.gres) if request.gres else "",
        limit=job.time_limit,
        hour=hour_of(job.submit),
    )


def named_features(features: JobFeatures, name: str, keep_names: bool) -> JobFeatures:
    """The features with the name of the job as it is stored."""
    command, folded = _stored_names(name, keep_names)
    return replace(features, command=command, name=folded)


def _stored_names(name: str, keep_names: bool) -> tuple[str, str]:
    """As given, and with digits folded."""
    folded, stored = folded_name(name), stored_name(name, keep_names)
    return stored, stored if folded == name else stored_name(folded, keep_names)


def gres_text(counts: Iterable[tuple[str, int]]) -> str:
    """``gpu:4`` of counts over all nodes, types (``gpu:a100``) summed up: accounting has their sum alone."""
    found: dict[str, int] = {}
    for name, count in counts:
        general = name.partition(":")[0]
        found[general] = found.get(general, 0) + count
    return ",".join(f"{name}:{count}" for name, count in sorted(found.items()))


def hour_of(submit: float) -> int:
    """The hour of the day, in the time of this host."""
    try:
        return datetime.fromtimestamp(submit).hour
    except (ValueError, OverflowError, OSError):
        return 0
