"""What goes wrong in calls to the fake, on request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf

from omfs_daemon.cluster.jobs import Job, JobState


class Fault(Enum):
    """What goes wrong in a call."""

    DEAD = auto()
    """The controller is gone: GatewayError, nothing done."""
    HANG = auto()
    """No answer: ``Faults.wait`` is called, then GatewayTimeout; nothing done."""
    LATE = auto()
    """The order takes effect, then as HANG."""
    STALE = auto()
    """The last answer from before the fault, again."""
    IGNORE = auto()
    """An order is accepted and not carried out."""
    REFUSE = auto()
    """An order is refused for every reference."""


@dataclass(slots=True)
class _Rule:
    fault: Fault
    methods: frozenset[str]
    left: float


@dataclass(slots=True)
class Faults:
    """Which calls go wrong, and how; ``wait`` lets a hanging call cost time, for instance by moving the clock."""

    wait: Callable[[], None] = lambda: None
    _rules: list[_Rule] = field(default_factory=list)
    _misreported: dict[int, JobState] = field(default_factory=dict)

    def inject(self, fault: Fault, methods: Collection[str] = (), times: float = inf) -> None:
        """Let the next ``times`` calls of these gateway methods (none named: all) go wrong."""
        self._rules.append(_Rule(fault, frozenset(methods), times))

    def misreport(self, job_id: int, state: JobState) -> None:
        """The next query of this job shows another state."""
        self._misreported[job_id] = state

    def clear(self) -> None:
        self._rules.clear()
        self._misreported.clear()

    def of(self, method: str) -> Fault | None:
        """The fault of this call, which uses it up."""
        for rule in self._rules:
            if rule.left > 0 and (not rule.methods or method in rule.methods):
                rule.left -= 1
                return rule.fault
        return None

    def applied_to(self, job: Job) -> Job:
        state = self._misreported.pop(job.id, None)
        return job if state is None else replace(job, state=state)
