"""Victims on their way out, and the swap area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omfs_daemon.simulate.engine.omfs_case import OmfsCase


@dataclass(slots=True)
class LeavingVictims:
    """Those of one preemption. ``left``: which still hold CPUs; ``since``: when the signal arrived, if it did."""

    preemptor: int
    left: list[int]
    since: float | None = None


class SwapArea:
    """Bytes that are swapped out. ``spared``: jobs that did not fit in besides others when their turn came, until
    there is more room again."""

    def __init__(self, case: OmfsCase) -> None:
        self._size, self._left = case.costs.size, case.costs.area
        self.spared: set[int] = set()

    def takes(self, job: int) -> bool:
        return bool(self._size[job] <= self._left) and job not in self.spared

    def reserve(self, victims: Sequence[int]) -> bool:
        """Room for all of them, or for none; those that are too many are spared then."""
        left = self._left
        too_many = []
        for job in victims:
            if self._size[job] <= left:
                left -= self._size[job]
            else:
                too_many.append(job)
        if too_many:
            self.spared.update(too_many)
            return False
        self._left = left
        return True

    def give_back(self, job: int) -> None:
        if self._size[job] > 0:
            self._left += self._size[job]
            self.spared.clear()
