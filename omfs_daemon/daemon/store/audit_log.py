"""The audit log: who has changed what, a line of JSON for each change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from omfs_daemon.daemon.store.disk import append_synced
from omfs_daemon.daemon.store.file_format import AUDIT


class Changer(Protocol):
    """Who makes a change, such as the control socket's ``Caller``."""

    @property
    def uid(self) -> int: ...
    @property
    def user(self) -> str: ...


def record_change(path: Path, now: float, who: Changer, changed: Sequence[str], **more: object) -> None:
    """Append a line, synced; OSError if that fails. ``changed``: a line of text for each change."""
    line = {
        "format": AUDIT.newest,
        "time": now,
        "at": datetime.fromtimestamp(now, UTC).astimezone().isoformat(timespec="seconds"),
        "uid": who.uid,
        "user": who.user,
        "changed": list(changed),
        **more,
    }
    append_synced(path, json.dumps(line))
