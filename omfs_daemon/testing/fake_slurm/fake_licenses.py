"""The fake's licences: how many there are, how many jobs hold; as in Slurm, held ones may be more than there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omfs_daemon.slurm.gateway import LicenceRow
from omfs_daemon.slurm.gateway import Licences


class LicenceBook:
    """Counts by name."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._totals = dict(totals)
        self._used = dict.fromkeys(totals, 0)

    def exist(self, licenses: Licences) -> bool:
        """Whether Slurm takes such a request: known names, and no more than there are in all."""
        return all(name in self._totals and count <= self._totals[name] for name, count in licenses)

    def free(self, licenses: Licences) -> bool:
        return all(self._used[name] + count <= self._totals[name] for name, count in licenses)

    def take(self, licenses: Licences) -> None:
        for name, count in licenses:
            self._used[name] += count

    def give_back(self, licenses: Licences) -> None:
        for name, count in licenses:
            self._used[name] -= count

    def rows(self) -> list[LicenceRow]:
        return [LicenceRow(name, self._totals[name], self._used[name]) for name in sorted(self._totals)]


def in_order(licenses: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """As a job shows them."""
    return tuple(sorted(licenses))
