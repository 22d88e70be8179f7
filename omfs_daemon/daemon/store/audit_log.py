"""The audit log: what operators have changed, and who."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from omfs_daemon.daemon.store.disk import append_synced
from omfs_daemon.daemon.store.file_format import AUDIT
from omfs_daemon.errors import ControlError


class Changer(Protocol):
    """Who makes a change, such as the control socket's ``Caller``."""

    @property
    def uid(self) -> int: ...
    @property
    def user(self) -> str: ...


class AuditLog:
    """``audit.jsonl`` in ``state_dir``, an object per line. ``clock`` returns seconds since the epoch.

    A line is synced before the act: a crash may leave a record of an act that was not carried out, never an act without
    a record.
    """

    def __init__(self, state_dir: Path, clock: Callable[[], float]) -> None:
        self._path = state_dir / AUDIT.name
        self._clock = clock

    def record(self, act: str, who: Changer, **what: object) -> None:
        """OSError if it cannot be written; then the act must not be carried out."""
        now = self._clock()
        at = datetime.fromtimestamp(now, UTC).astimezone().isoformat(timespec="seconds")
        line = {"format": AUDIT.newest, "time": now, "at": at, "uid": who.uid, "user": who.user, "act": act}
        append_synced(self._path, json.dumps(line | what))

    def record_or_refuse(self, act: str, who: Changer, **what: object) -> None:
        """ControlError if it cannot be written."""
        try:
            self.record(act, who, **what)
        except OSError as error:
            raise ControlError(f"nothing was done: {self._path}: {error.strerror}") from error
