"""Preemptions under way: decided, signaled, victims gone, preemptor running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omfs_daemon.cluster.jobs import Allocation
from omfs_daemon.cluster.snapshot import PreemptionUnderWay
from omfs_daemon.simulate.engine.omfs_case import OmfsCase


@dataclass(slots=True)
class SimulatedPreemption:
    """One decision, numbered. ``left``: victims that still hold CPUs; ``since``: when the signal arrived, if it did."""

    number: int
    preemptor: int
    account: str
    allocations: tuple[Allocation, ...]
    urgent: bool
    victims: tuple[int, ...]
    left: list[int] = field(default_factory=list)
    since: float | None = None

    def commitment(self) -> PreemptionUnderWay:
        victims = frozenset(str(index + 1) for index in self.victims)
        return PreemptionUnderWay(str(self.preemptor + 1), self.account, self.allocations, victims, self.urgent)


class SimulatedPreemptions:
    """All that are under way, in the order of the decisions."""

    def __init__(self) -> None:
        self._by_preemptor: dict[int, SimulatedPreemption] = {}
        self._by_victim: dict[int, SimulatedPreemption] = {}

    def __iter__(self) -> Iterator[SimulatedPreemption]:
        return iter(list(self._by_preemptor.values()))

    def add(self, preemption: SimulatedPreemption) -> None:
        preemption.left = list(preemption.victims)
        self._by_preemptor[preemption.preemptor] = preemption
        self._by_victim.update(dict.fromkeys(preemption.victims, preemption))

    def of(self, preemptor: int, number: int) -> SimulatedPreemption | None:
        """The one with this number, if it is still under way."""
        preemption = self._by_preemptor.get(preemptor)
        return preemption if preemption is not None and preemption.number == number else None

    def ended(self, job: int) -> bool:
        """A job ended by itself; returns whether it was about to be preempted."""
        preemption = self._by_victim.get(job)
        if preemption is None:
            return False
        preemption.left.remove(job)
        return True

    def done(self, preemption: SimulatedPreemption) -> None:
        del self._by_preemptor[preemption.preemptor]
        for victim in preemption.victims:
            del self._by_victim[victim]

    def concerns(self, job: int) -> bool:
        return job in self._by_preemptor or job in self._by_victim


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
