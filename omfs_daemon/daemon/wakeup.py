"""The wake file: touching it makes the daemon poll at once.

The submit plug-in opens and closes it when a job is submitted or released, ``EpilogSlurmctld`` when one ends
(docs/plugins.md). Neither waits for the daemon. What a wake-up misses, the next regular poll finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import structlog
from inotify_simple import INotify, flags

from omfs_daemon.config.schema import WAKE_FILE
from omfs_daemon.errors import OmfsError

_READ_MS = 1000


class Wakeup:
    """Watches ``directory/wake`` and calls ``wake`` (from a thread of its own) whenever it was opened for writing and
    closed. Close it once. ``give``: gives it to SlurmUser where this process may not."""

    def __init__(self, directory: Path, wake: Callable[[], None], give: Callable[[], None] | None = None) -> None:
        self._wake = wake
        self._give = give
        self._ending = False
        self._inotify: INotify | None = None
        self._thread: Thread | None = None
        self._path = directory / WAKE_FILE
        self._log = structlog.get_logger("wake")
        try:
            self._begin(directory)
        except OSError as error:
            text = "the daemon polls at its interval only"
            self._log.error("wake_file_not_watched", file=str(self._path), error=str(error), message=text)

    def _begin(self, directory: Path) -> None:
        # Its directory is watched, for the file may be replaced; users cannot write in either.
        # For reading only: it may be SlurmUser's already.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        os.close(descriptor)
        self._inotify = INotify()
        self._inotify.add_watch(str(directory), flags.CLOSE_WRITE)
        self._thread = Thread(target=self._serve, name="omfs-wakeup", daemon=True)
        self._thread.start()

    def belong_to(self, uid: int) -> None:
        """Make this user its owner: SlurmUser, as whom the submit plug-in runs."""
        try:
            if self._path.lstat().st_uid == uid:
                return
            if self._give is not None:
                self._give()
            else:
                os.chown(self._path, uid, -1, follow_symlinks=False)
        except (OSError, OmfsError) as error:
            text = "slurmctld cannot wake the daemon, which polls at its interval only"
            self._log.error("wake_file_owner_not_set", file=str(self._path), error=str(error), message=text)

    def _serve(self) -> None:
        inotify = self._inotify
        while inotify is not None and not self._ending:
            try:
                events = inotify.read(timeout=_READ_MS)
            except (OSError, ValueError):
                return  # closed
            if any(event.name == WAKE_FILE for event in events):
                self._wake()

    def close(self) -> None:
        self._ending = True
        if self._thread is not None:
            self._thread.join(timeout=2 * _READ_MS / 1000)
        if self._inotify is not None:
            self._inotify.close()
