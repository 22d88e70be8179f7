"""Waiting jobs that are alike, and the line they stand in (planner.py is 409 lines)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
import numpy as np
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.policy.arrays.job_arrays import Waiting
from omfs_daemon.policy.rules.job_kinds import Kind
from omfs_daemon.policy.arrays.node_arrays import Bools
from omfs_daemon.policy.arrays.node_arrays import Ints
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.working_state import Standing
from omfs_daemon.policy.victims.need import Need


@dataclass(slots=True)
class _Group:
    """Waiting jobs that are alike. ``tasks``: how many; ``beyond``: its account is not entitled to one more; ``shut``:
    why the next one cannot start; ``ranked``: no further one gets a rank."""

    kind: Kind
    request: Request
    tasks: int = 1
    beyond: bool = False
    shut: Reason | None = None
    ranked: bool = False
    known_need: Need | None = None

    @property
    def is_decided(self) -> bool:
        """Whether nothing that its account owns is left for the next one."""
        return self.beyond or (self.shut is not None and self.ranked)

    @property
    def is_shut(self) -> bool:
        return self.shut is not None

    def need(self, standing: Standing, job: Job) -> Need:
        """What each of its jobs needs; most groups are never asked."""
        if self.known_need is None:
            self.known_need = standing.need_of(job)
        return self.known_need


_Queue = list[tuple[Job, _Group]]

_STEP = 1024


class _Line:
    """The waiting jobs that could start, in turn. Those of a closed group are passed over, many at a time."""

    def __init__(self, waiting: Waiting, places: Ints, groups: Mapping[int, _Group]) -> None:
        order = waiting.in_turn(places)
        self._jobs, self._numbers, self._groups = waiting.jobs[order], waiting.alike[order], groups
        self._left: Bools = np.ones(len(order), dtype=bool)

    def walk(self, is_closed: Callable[[_Group], bool]) -> Iterator[tuple[int, Job, _Group]]:
        """Those who are left and whose group is open when their turn comes, with their places in the line."""
        closed: Bools = np.zeros(max(self._groups, default=-1) + 1, dtype=bool)
        closed[[number for number, group in self._groups.items() if is_closed(group)]] = True
        for begin in range(0, len(self._jobs), _STEP):
            numbers = self._numbers[begin : begin + _STEP]
            for at in np.flatnonzero(self._left[begin : begin + _STEP] & ~closed[numbers]).tolist():
                number = int(numbers[at])
                if not closed[number]:
                    group = self._groups[number]
                    yield begin + at, self._jobs[begin + at], group
                    closed[number] = is_closed(group)

    def leave(self, at: int) -> None:
        """What becomes of this one is noted."""
        self._left[at] = False

    def rest(self) -> tuple[list[Job], list[Reason]]:
        """All who are left, with the reasons of their groups."""
        reasons = {number: group.shut or Reason.BEYOND_ENTITLEMENT for number, group in self._groups.items()}
        return self._jobs[self._left].tolist(), [reasons[number] for number in self._numbers[self._left].tolist()]
