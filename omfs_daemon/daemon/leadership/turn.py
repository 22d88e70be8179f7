"""The time in which a daemon is the active one of two: what its parts need to know of that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import Caller, Role
from omfs_daemon.daemon.api.operations import OPERATIONS, Control
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.daemon.leadership.holder import own_holder
from omfs_daemon.daemon.leadership.leadership import Leadership, LeaseLost
from omfs_daemon.errors import ControlError


class Turn(NamedTuple):
    """``state_dir``: of this epoch. ``host``: this one. ``register``: adds what the pair has to tell to metrics."""

    leadership: Leadership
    state_dir: Path
    host: str
    register: Callable[[CollectorRegistry], None]

    def renew(self, stand_down: Callable[[], None]) -> None:
        """LeaseLost if nothing may be ordered now; then, if the lease is lost for good, ``stand_down`` is called."""
        try:
            self.leadership.renew()
        except LeaseLost:
            if self.leadership.is_lost:
                stand_down()
            raise

    def reconfigured(self, config: Config) -> None:
        self.leadership.update(own_holder(config, self.host))


class ActiveAnswers:
    """The active daemon's answers. What operators may change is refused while its lease is not fresh: another one may
    be active by then."""

    def __init__(self, answers: Control, turn: Turn) -> None:
        self._answers = answers
        self._turn = turn

    def status(self, caller: Caller) -> StatusView:
        view, leadership = self._answers.status(caller), self._turn.leadership
        is_active = leadership.is_fresh
        text = "active" if is_active else "was active, and waits for its lease"
        host = self._turn.host if is_active else ""
        view["pair"] = {"active": is_active, "host": host, "epoch": leadership.epoch, "text": text}
        return view

    def __getattr__(self, name: str) -> Any:
        operation = OPERATIONS.get(name)
        if operation is not None and operation.role is Role.OPERATOR:
            try:
                self._turn.leadership.require()
            except LeaseLost as error:
                raise ControlError(str(error)) from error
        return getattr(self._answers, name)
