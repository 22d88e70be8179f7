"""Asks Slurm what limits starts, at a pace of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.limits import SiteLimits
from omfs_daemon.cluster.reserved_nodes import ReservedNodes
from omfs_daemon.daemon.rest import Rest
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.gateway import Gateway

LIMITS_SHARE_OF_TIME = 0.02
"""Limits change seldom, and their use is counted from the jobs: asking may take at most this part of the time."""

LIMITS_SECONDS = 10.0
"""Between two questions at least: each is two to four calls, however quick."""

_UNREAD = SiteLimits(None, None, None, None, None)


class LimitsReader:
    """``latest``: what Slurm said when it was last asked. What cannot be read is None there, and no error."""

    def __init__(self, gateway: Gateway, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._clock = clock
        self._rest = Rest()
        self._unread: frozenset[str] = frozenset()
        self._reserved_nodes = ReservedNodes()
        self.latest = _UNREAD

    def ask_if_due(self, now: float) -> None:
        if not self._rest.is_over(now):
            return
        began = self._clock()
        try:
            self.latest = self._gateway.limits()
        except GatewayError:
            self.latest = _UNREAD
        self._note_unread()
        ended = self._clock()
        self._rest.begin(ended, max(LIMITS_SECONDS, (ended - began) * (1 / LIMITS_SHARE_OF_TIME - 1)))

    def off_reserved_nodes(self, jobs: Sequence[Job], now: float) -> Sequence[Job]:
        """The jobs; those that wait do not use nodes that are reserved for others before they end."""
        return self._reserved_nodes.kept_free(jobs, self.latest.reservations or (), now)

    def _note_unread(self) -> None:
        """What can no longer be read is logged once."""
        unread = frozenset(self.latest.unread())
        if fresh := sorted(unread - self._unread):
            text = "whether Slurm would start a job cannot be told where it depends on these"
            structlog.get_logger("observer").warning("limits_not_read", parts=fresh, message=text)
        self._unread = unread
