"""Lock of the state directory: the daemon, or the failsafe while no daemon runs.

The time of its file tells when the daemon lived last, also after a reboot, and where it decided nothing then.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from omfs_daemon.errors import OmfsError

_NAME = "lock"


class LockError(OmfsError):
    """Another process has the lock."""


class DirectoryLock:
    """An advisory lock that ends with the process, however it ends."""

    def __init__(self, directory: Path) -> None:
        try:
            self._fd = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OmfsError(f"{directory}: cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise LockError(f"{directory}: another omfsd (or failsafe) works here already") from error

    def show_life(self, now: float) -> None:
        """The daemon lives at this time."""
        with suppress(OSError):  # the failsafe then goes by the heartbeat
            os.utime(self._fd, (now, now))

    def close(self) -> None:
        os.close(self._fd)


def last_sign_of_life(directory: Path, now: float) -> float | None:
    """Seconds since the last one; None where no daemon ever was."""
    try:
        return now - (directory / _NAME).stat().st_mtime
    except OSError:
        return None
