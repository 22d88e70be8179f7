"""What slurmdbd recorded of nodes, and what sreport adds up."""

from __future__ import annotations

from datetime import datetime
from math import ceil, floor
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.accounting.nodes_away import EVENT_FIELDS, RESERVATION_FIELDS, AwayRow, nodes_away
from omfs_daemon.slurm.commands.run_command import Runner, run_command

_TIMEOUT = 60.0
_HOUR = 3600.0


class SlurmUtilization(NamedTuple):
    """What ``sreport cluster utilization`` says of the whole hours from ``begin`` to ``end``, CPU seconds."""

    begin: float
    end: float
    allocated: float
    down: float
    reported: float


def asked_down(since: float, until: float, conf: Path | None, runner: Runner = run_command) -> list[AwayRow]:
    """When nodes were down, drained, failing, or reserved, as slurmdbd recorded it; GatewayError."""
    period = [f"start={_local(since)}", f"end={_local(until)}"]
    events, reservations = (
        runner(["sacctmgr", "-nP", "show", what, *period, f"format={fields}"], timeout=_TIMEOUT, conf=conf).stdout
        for what, fields in (("event", EVENT_FIELDS), ("reservation", RESERVATION_FIELDS))
    )
    return nodes_away(events, reservations)


def asked_utilization(
    since: float, until: float, conf: Path | None, runner: Runner = run_command
) -> SlurmUtilization | None:
    """Of the whole hours of the period; None if slurmdbd has not added any of them up yet. GatewayError."""
    begin, end = ceil(since / _HOUR) * _HOUR, floor(until / _HOUR) * _HOUR
    if begin >= end:
        return None
    words = [
        "sreport",
        "-nP",
        "-t",
        "seconds",
        "cluster",
        "utilization",
        f"start={_local(begin)}",
        f"end={_local(end)}",
    ]
    printed = runner([*words, "format=Allocated,Down,PlannedDown,Reported"], timeout=_TIMEOUT, conf=conf).stdout
    for line in printed.splitlines():
        numbers = line.split("|")
        if len(numbers) == 4 and all(number.isdecimal() for number in numbers):
            allocated, down, planned_down, reported = map(float, numbers)
            return SlurmUtilization(begin, end, allocated, down + planned_down, reported) if reported else None
    return None


def _local(time: float) -> str:
    return datetime.fromtimestamp(time).strftime("%Y-%m-%dT%H:%M:%S")
