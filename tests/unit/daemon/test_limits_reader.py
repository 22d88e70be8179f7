"""Limits are asked for now and then, and what cannot be read is no error."""

from __future__ import annotations

from unittest.mock import Mock

from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.daemon.limits_reader import LIMITS_SECONDS, LIMITS_SHARE_OF_TIME, LimitsReader
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.gateway import Gateway

READ = SiteLimits()
UNREAD = SiteLimits(None, None, None, None, None)


class Slurm:
    """Takes ``takes`` seconds to answer."""

    def __init__(self, takes: float) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self.takes = takes
        self.error: GatewayError | None = None
        self.gateway = Mock(spec=Gateway, limits=self._limits)

    def _limits(self) -> SiteLimits:
        self.asked.append(self.now)
        self.now += self.takes
        if self.error is not None:
            raise self.error
        return READ

    def ask_for(self, seconds: float, reader: LimitsReader) -> None:
        end = self.now + seconds
        while self.now < end:
            reader.ask_if_due(self.now)
            self.now += 0.1


def test_a_quick_slurm_is_asked_every_few_seconds_and_a_slow_one_for_its_share_of_the_time() -> None:
    for takes in (0.001, 1.0):
        slurm = Slurm(takes)
        slurm.ask_for(1000, LimitsReader(slurm.gateway, lambda slurm=slurm: slurm.now))  # type: ignore[misc]
        most = min(1000 / LIMITS_SECONDS, 1000 * LIMITS_SHARE_OF_TIME / takes)
        assert 0.9 * most <= len(slurm.asked) <= most + 1


def test_what_cannot_be_read_is_unknown_until_it_can_be() -> None:
    slurm = Slurm(0.001)
    reader = LimitsReader(slurm.gateway, lambda: slurm.now)
    assert reader.latest == UNREAD
    slurm.error = GatewayError("slurmctld: timed out")
    slurm.ask_for(1, reader)
    assert (reader.latest, len(slurm.asked)) == (UNREAD, 1)
    slurm.error = None
    slurm.ask_for(LIMITS_SECONDS, reader)
    assert reader.latest == READ
