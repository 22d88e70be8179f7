"""Groups of waiting jobs that are alike, and the queue in which the planner walks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from omfs_daemon.cluster.jobs import Job, JobRequest
from omfs_daemon.policy.arrays.job_arrays import WaitingJobs
from omfs_daemon.policy.arrays.node_arrays import Bools, Ints
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.rules import laws
from omfs_daemon.policy.rules.job_kinds import JobKind
from omfs_daemon.policy.victims.need import ResourceNeed
from omfs_daemon.policy.working_state import WorkingState


@dataclass(slots=True)
class JobGroup:
    """Waiting jobs that are alike: same account, class, and request.

    tasks    how many there are
    beyond   the account is not entitled to one more
    blocked  why the next one cannot start
    ranked   no further one gets a rank
    """

    kind: JobKind
    request: JobRequest
    tasks: int = 1
    beyond: bool = False
    blocked: Reason | None = None
    ranked: bool = False
    known_need: ResourceNeed | None = None

    @property
    def is_decided(self) -> bool:
        """Whether its account's entitlement leaves nothing for the next one."""
        return self.beyond or (self.is_blocked and self.ranked)

    @property
    def is_blocked(self) -> bool:
        return self.blocked is not None

    def need(self, working_state: WorkingState, job: Job) -> ResourceNeed:
        """What each of its jobs needs; computed on demand, since most groups never need it."""
        if self.known_need is None:
            self.known_need = working_state.need_of(job)
        return self.known_need


def pending_cpus(groups: Iterable[JobGroup], entities: int) -> list[int]:
    """CPUs that waiting jobs request, by entity of the account tree."""
    pending = [0] * entities
    for group in groups:
        laws.add_cpus(pending, group.kind.leaf.path, group.request.cpus * group.tasks)
    return pending


GroupedJobs = list[tuple[Job, JobGroup]]

_STEP = 1024


class JobQueue:
    """The waiting jobs that could start, in queue order; jobs of a closed group are skipped, many at a time."""

    def __init__(self, waiting: WaitingJobs, indices: Ints, groups: Mapping[int, JobGroup]) -> None:
        order = waiting.in_queue_order(indices)
        self._jobs, self._numbers, self._groups = waiting.jobs[order], waiting.alike[order], groups
        self._left: Bools = np.ones(len(order), dtype=bool)

    def walk(self, is_closed: Callable[[JobGroup], bool]) -> Iterator[tuple[int, Job, JobGroup]]:
        """The remaining jobs whose group is open when their turn comes, with their positions in the queue."""
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

    def remove(self, at: int) -> None:
        """The job at this position has been decided."""
        self._left[at] = False

    def remaining(self) -> tuple[list[Job], list[Reason]]:
        """The jobs not decided, with the reasons of their groups."""
        reasons = {number: group.blocked or Reason.BEYOND_ENTITLEMENT for number, group in self._groups.items()}
        return self._jobs[self._left].tolist(), [reasons[number] for number in self._numbers[self._left].tolist()]
