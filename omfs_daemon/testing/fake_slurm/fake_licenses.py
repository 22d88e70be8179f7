"""The fake's licenses: how many exist and how many jobs hold; as in Slurm, jobs may hold more than exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omfs_daemon.slurm.gateway import LicenseRow, Licenses


class LicenseCounts:
    """Counts by name."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._totals = dict(totals)
        self._used = dict.fromkeys(totals, 0)

    def reset(self) -> None:
        """Nobody holds any."""
        self._used = dict.fromkeys(self._totals, 0)

    def exist(self, licenses: Licenses) -> bool:
        """Whether Slurm accepts such a request: known names, and no more than exist."""
        return all(name in self._totals and count <= self._totals[name] for name, count in licenses)

    def free(self, licenses: Licenses) -> bool:
        return all(self._used[name] + count <= self._totals[name] for name, count in licenses)

    def take(self, licenses: Licenses) -> None:
        for name, count in licenses:
            self._used[name] += count

    def give_back(self, licenses: Licenses) -> None:
        for name, count in licenses:
            self._used[name] -= count

    def rows(self) -> list[LicenseRow]:
        return [LicenseRow(name, self._totals[name], self._used[name]) for name in sorted(self._totals)]


def sorted_licenses(licenses: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """As a job shows them."""
    return tuple(sorted(licenses))
