"""What ``omfs report`` asks of the daemon: why CPUs were idle, hour by hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from omfs_daemon.daemon.store.idle_hours import IdleHour


class IdleHourView(TypedDict):
    """``cpu_seconds`` by cause, in the ``watched_seconds`` of the hour from ``begin`` on."""

    begin: float
    watched_seconds: float
    cpu_seconds: dict[str, float]


class IdleHoursView(TypedDict):
    """Oldest first."""

    hours: list[IdleHourView]


def idle_hours_view(hours: Iterable[IdleHour]) -> IdleHoursView:
    return IdleHoursView(
        hours=[
            IdleHourView(
                begin=hour.begin,
                watched_seconds=round(hour.watched, 3),
                cpu_seconds={cause: round(seconds, 3) for cause, seconds in hour.cpu_seconds.items()},
            )
            for hour in hours
        ]
    )
