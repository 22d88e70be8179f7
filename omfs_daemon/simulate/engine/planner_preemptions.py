"""Stops under way: decided, the signal arrives, the victims are gone, the beneficiary runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.simulate.engine.omfs_case import Case


@dataclass(slots=True)
class Stop:
    """One decision, numbered. ``left``: victims that still hold CPUs; ``since``: when the signal arrived, if it did."""

    number: int
    beneficiary: int
    account: str
    shares: tuple[Share, ...]
    urgent: bool
    victims: tuple[int, ...]
    left: list[int] = field(default_factory=list)
    since: float | None = None

    def commitment(self) -> Commitment:
        victims = frozenset(str(index + 1) for index in self.victims)
        return Commitment(str(self.beneficiary + 1), self.account, self.shares, victims, self.urgent)


class Stops:
    """All that are under way, in the order of the decisions."""

    def __init__(self) -> None:
        self._by_beneficiary: dict[int, Stop] = {}
        self._by_victim: dict[int, Stop] = {}

    def __iter__(self) -> Iterator[Stop]:
        return iter(list(self._by_beneficiary.values()))

    def add(self, stop: Stop) -> None:
        stop.left = list(stop.victims)
        self._by_beneficiary[stop.beneficiary] = stop
        self._by_victim.update(dict.fromkeys(stop.victims, stop))

    def of(self, beneficiary: int, number: int) -> Stop | None:
        """The one with this number, if it is still under way."""
        stop = self._by_beneficiary.get(beneficiary)
        return stop if stop is not None and stop.number == number else None

    def ended(self, job: int) -> bool:
        """A job ended by itself; whether it was about to be stopped."""
        stop = self._by_victim.get(job)
        if stop is None:
            return False
        stop.left.remove(job)
        return True

    def done(self, stop: Stop) -> None:
        del self._by_beneficiary[stop.beneficiary]
        for victim in stop.victims:
            del self._by_victim[victim]

    def concerns(self, job: int) -> bool:
        return job in self._by_beneficiary or job in self._by_victim


class Area:
    """Bytes that are swapped out. ``spared``: jobs that did not fit in besides others when their turn came, until
    there is more room again."""

    def __init__(self, case: Case) -> None:
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
