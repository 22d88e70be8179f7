"""What ``omfs history --hours`` asks of the daemon beside ``idle_hours``: how long started jobs had waited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from omfs_daemon.daemon.store.wait_hours import WaitShare


class WaitsView(TypedDict):
    """Of all jobs of a partition or account (``group``, ``value``) that started in the hour from ``begin`` on."""

    begin: float
    group: str
    value: str
    jobs: int
    mean_wait_seconds: float
    longest_wait_seconds: float


class WaitHoursView(TypedDict):
    """Oldest first. Each job counts in its partition and in its account."""

    waits: list[WaitsView]


def wait_hours_view(shares: Iterable[WaitShare]) -> WaitHoursView:
    return WaitHoursView(
        waits=[
            WaitsView(
                begin=share.begin,
                group=share.group,
                value=share.value,
                jobs=share.jobs,
                mean_wait_seconds=round(share.waited / share.jobs, 3),
                longest_wait_seconds=round(share.longest, 3),
            )
            for share in shares
        ]
    )
