"""Lock of the state directory: the daemon, or the failsafe while no daemon runs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from omfs_daemon.errors import OmfsError


class LockError(OmfsError):
    """Another process has the lock."""


class DirectoryLock:
    """An advisory lock that ends with the process, however it ends."""

    def __init__(self, directory: Path) -> None:
        try:
            self._fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OmfsError(f"{directory}: cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise LockError(f"{directory}: another omfsd (or failsafe) works here already") from error

    def close(self) -> None:
        os.close(self._fd)
