"""Where the active slurmctld is, asked regularly: a controller that is dead is an answer that takes long."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import Event, Thread

from omfs_daemon.daemon.leadership.leadership import since_boot
from omfs_daemon.daemon.leadership.lease import Controller, may_keep
from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.parse_ping import active_controller, is_same_host

ASKED_EVERY = 3.0


class ControllerWatch:
    """``ask``: the output of ``scontrol ping``; ``host``: this one."""

    def __init__(self, ask: Callable[[], str], host: str, clock: Callable[[], float] = since_boot) -> None:
        self._controller = Controller()
        self._asked_at = -inf
        self.seen_here = -inf
        """When the last answer was asked for by which the active one is on this host."""
        self._ask = ask
        self._host = host
        self._clock = clock
        self._ending = Event()
        self._thread = Thread(target=self._serve, name="controller", daemon=True)
        self._thread.start()

    @property
    def controller(self) -> Controller:
        """By the last answer. Unknown if that is older than a holder may go by: a host that was paused would take the
        lease again and again, and lose it each time."""
        controller, asked_at = self._controller, self._asked_at
        return controller if may_keep(asked_at, self._clock()) else Controller()

    def _serve(self) -> None:
        while not self._ending.is_set():
            self._look()
            self._ending.wait(ASKED_EVERY)

    def _look(self) -> None:
        asked, printed = self._clock(), ""
        with suppress(GatewayError):
            printed = self._ask()
        host = active_controller(printed)
        is_here = bool(host) and is_same_host(host, self._host)
        if is_here:
            self.seen_here = asked
        self._controller, self._asked_at = Controller(host, is_here), asked

    def close(self) -> None:
        self._ending.set()
