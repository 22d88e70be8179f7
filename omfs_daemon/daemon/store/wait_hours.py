"""How long started jobs had waited, by the hour of their start, as the history keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from omfs_daemon.daemon.store.idle_hours import HOUR


class WaitGroup(StrEnum):
    """By what waits are summed up; each job counts once in each."""

    PARTITION = "partition"
    ACCOUNT = "account"


class StartedJob(NamedTuple):
    """``start``: seconds since the epoch; ``wait``: seconds. How many partitions and accounts there are is bounded."""

    start: float
    partition: str
    account: str
    wait: float


class WaitShare(NamedTuple):
    """Of the jobs of a partition or account that have started in an hour: how many, what they waited together, and what
    the one did that waited longest. Seconds."""

    begin: float
    group: WaitGroup
    value: str
    jobs: int
    waited: float
    longest: float


def wait_shares(started: Iterable[StartedJob]) -> list[WaitShare]:
    """Summed up; an hour with partitions has the same jobs by account."""
    found: dict[tuple[float, WaitGroup, str], WaitShare] = {}
    for job in started:
        begin = job.start // HOUR * HOUR
        for group, value in ((WaitGroup.PARTITION, job.partition), (WaitGroup.ACCOUNT, job.account)):
            before = found.get((begin, group, value), WaitShare(begin, group, value, 0, 0.0, 0.0))
            found[begin, group, value] = before._replace(
                jobs=before.jobs + 1, waited=before.waited + job.wait, longest=max(before.longest, job.wait)
            )
    return list(found.values())
