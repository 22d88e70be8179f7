"""Whether the last reload was good: a refused one is shown until the next good one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from omfs_daemon.daemon.api.status_view import RefusedReloadView
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.errors import OmfsError


class Reloads:
    """Asked from any thread."""

    def __init__(self, notifier: Notifier, clock: Callable[[], float]) -> None:
        self.notifier = notifier
        self._clock = clock
        self._refused: RefusedReloadView | None = None

    def refused(self) -> RefusedReloadView | None:
        """Why and when the last one was; None after a good one."""
        return self._refused

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Within it the configuration is taken over; an OmfsError refuses it, and is raised again."""
        self.notifier.reloading()
        try:
            yield
        except OmfsError as error:
            log, text = structlog.get_logger("omfsd"), str(error)
            log.error("configuration_refused", error=text, message="the running configuration stays in force")
            self._refused = RefusedReloadView(time=self._clock(), text=text)
            raise
        finally:
            self.notifier.ready()
        self._refused = None
