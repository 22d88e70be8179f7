"""When nodes were not there for everybody: down, drained, or reserved, as slurmdbd recorded it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from math import inf
from typing import NamedTuple

from omfs_daemon.errors import ParseError
from omfs_daemon.slurm.commands.values import node_names

EVENT_FIELDS = "NodeName,TimeStart,TimeEnd,TRES"
RESERVATION_FIELDS = "Start,End,Flags,TRES,UnusedWall,NodeNames"
"""Of sacctmgr; names of nodes last."""


class AwayRow(NamedTuple):
    """Seconds since the epoch, ``end`` inf: still; and CPUs."""

    begin: float
    end: float
    cpus: int


def nodes_away(events: str, reservations: str) -> list[AwayRow]:
    """From what ``sacctmgr -nP show event`` and ``show reservation`` print, with the fields above.

    A node that was drained in a reservation for maintenance was away once. Of another reservation jobs may use a part;
    the rest, which slurmdbd adds up hour by hour, was away on the average of its time.
    """
    by_node: dict[str, list[AwayRow]] = defaultdict(list)
    rest = []
    for node, row in _of_events(events):
        by_node[node].append(row)
    for line in reservations.splitlines():
        begin, end, flags, tres, unused, names = (*line.split("|", 5), "", "", "", "", "", "")[:6]
        began, ended, cpus = event_time(begin), event_time(end), _cpus(tres)
        if began is None or ended is None or ended <= began or not cpus:
            continue
        if "MAINT" in flags.split(","):
            nodes = _expanded(names)
            for node in nodes:
                by_node[node].append(AwayRow(began, ended, cpus // len(nodes)))
        elif idle := round(cpus * min(_number(unused) / (ended - began), 1.0)):
            rest.append(AwayRow(began, ended, idle))
    return [*(row for rows in by_node.values() for row in _once(rows)), *rest]


def event_time(text: str) -> float | None:
    """Seconds since the epoch, or a local time; None: not yet."""
    if text.isdecimal():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _of_events(printed: str) -> Iterator[tuple[str, AwayRow]]:
    for line in printed.splitlines():
        node, start, stop, tres = (*line.split("|"), "", "", "", "")[:4]
        began, cpus = event_time(start), _cpus(tres)
        if node and cpus and began is not None:
            ended = event_time(stop)
            yield node, AwayRow(began, inf if ended is None else ended, cpus)


def _once(rows: Iterable[AwayRow]) -> Iterator[AwayRow]:
    """Of one node, without the time that two rows have in common."""
    reached = -inf
    for begin, end, cpus in sorted(rows):
        if end > reached:
            yield AwayRow(max(begin, reached), end, cpus)
            reached = end


def _expanded(names: str) -> tuple[str, ...]:
    try:
        return node_names(names)
    except ParseError:
        return ()


def _cpus(tres: str) -> int:
    cpus = dict(part.partition("=")[::2] for part in tres.split(",")).get("cpu", "")
    return int(cpus) if cpus.isdecimal() else 0


def _number(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0
