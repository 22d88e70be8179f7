"""The fake's clock: durations, and events in the order in which they happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import floor, inf


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take, in seconds; slurm.conf's names where it has them.

    ``requeue_delay`` is cred_expire + 1, ``completing`` the time from a process's end until its node is free.
    """

    sched_interval: float = 1.0
    bf_interval: float = 1.0
    bf_window: float = 86400.0
    bf_max_blocked: int = 10
    bf_max_tested: int = 500
    requeue_delay: float = 6.0
    kill_wait: float = 5.0
    completing: float = 0.1
    min_job_age: float = 300.0
    slurmd_timeout: float = 300.0


class Events:
    """Events by time, those of one instant in the order in which they were planned; ``now`` only grows."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._ticks: set[str] = set()

    def plan(self, at: float, happen: Callable[[], None]) -> None:
        if at < inf:
            self._planned += 1
            heappush(self._heap, (at, self._planned, happen))

    def plan_tick(self, name: str, interval: float, happen: Callable[[], None]) -> None:
        """One event at the next multiple of ``interval``, however often it is planned until then."""
        if name not in self._ticks:
            self._ticks.add(name)
            self.plan((floor(self.now / interval + 1e-9) + 1) * interval, lambda: self._tick(name, happen))

    def run_until(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            at, _, happen = heappop(self._heap)
            self.now = max(self.now, at)
            happen()
        self.now = max(self.now, until)

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def _tick(self, name: str, happen: Callable[[], None]) -> None:
        self._ticks.discard(name)
        happen()
