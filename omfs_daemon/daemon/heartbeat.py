"""The heartbeat file: seconds since the epoch as text.

The submit plug-in holds jobs only while it is fresh; the failsafe releases everything once it is old.
"""

from __future__ import annotations

import os
from pathlib import Path

from omfs_daemon.daemon.store.disk import open_own

EPOCH_FILE = "epoch"
"""Beside the heartbeat, for job_submit.lua: the number that marks of omfsd must exceed. Only of two daemons."""


def beat(path: Path, now: float) -> None:
    """Write the time."""
    write_for_slurmctld(path, f"{int(now)}\n")


def write_for_slurmctld(path: Path, text: str) -> None:
    """Replace the file; atomic, and world-readable for slurmctld."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o644)  # whatever the umask
        file.write(text)
    temporary.replace(path)


def age(path: Path, now: float) -> float | None:
    """Seconds since the last heartbeat; None if there is none or it cannot be read."""
    try:
        return now - int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
