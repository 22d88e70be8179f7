"""Locks of the state directory: one for each omfsd, and one for who gives orders."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from omfs_daemon.daemon.store.disk import open_own
from omfs_daemon.errors import OmfsError

_ORDERS = "orders.lock"


class LockError(OmfsError):
    """Another process has the lock."""


class DirectoryLock:
    """An advisory lock that ends with the process, however it ends."""

    def __init__(self, directory: Path, name: str = "lock") -> None:
        try:
            self._fd = open_own(directory / name, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise OmfsError(f"{directory}: cannot be locked: {error.strerror}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            raise LockError(f"{directory}: another omfsd (or failsafe) works here already") from error

    def set_time(self, time: float) -> None:
        """Of the file; as far as the file system allows it."""
        with suppress(OSError):
            os.utime(self._fd, (time, time))

    def close(self) -> None:
        os.close(self._fd)


class OrdersLock:
    """Who has it may give orders: the daemon, but not in a dry run; or the failsafe.

    The time of its file tells when a daemon lived last that gave orders, also after a reboot, or when it was paused.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock: DirectoryLock | None = None

    def take(self) -> bool:
        """False if this process has it already. LockError if another one has it."""
        if self._lock is not None:
            return False
        self._lock = DirectoryLock(self._directory, _ORDERS)
        return True

    def leave(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def show_life(self, now: float) -> None:
        """The daemon that has it lives at this time."""
        if self._lock is not None:
            self._lock.set_time(now)

    def unused_for(self, now: float) -> float | None:
        """Seconds since a daemon lived; None where none ever gave orders."""
        try:
            return now - (self._directory / _ORDERS).stat().st_mtime
        except OSError:
            return None
