"""The wake files: touching one makes the daemon poll, at once or soon.

The submit plug-in opens and closes one when a job is submitted or released, ``EpilogSlurmctld`` when one ends
(docs/plugins.md). Neither waits for the daemon. What a wake-up misses, the next regular poll finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import structlog
from inotify_simple import INotify, flags

from omfs_daemon.config.schema import WAKE_FILE, WAKE_LATER_FILE
from omfs_daemon.errors import OmfsError

_READ_MS = 1000


class Wakeup:
    """Watches ``directory/wake`` and ``directory/wake_later``, and calls ``wake`` and ``wake_later`` (from a thread of
    its own) whenever the file was opened for writing and closed. Close it once. ``give``: gives both to SlurmUser where
    this process may not."""

    def __init__(
        self,
        directory: Path,
        wake: Callable[[], None],
        wake_later: Callable[[], None],
        give: Callable[[], None] | None = None,
    ) -> None:
        self._calls = {WAKE_FILE: wake, WAKE_LATER_FILE: wake_later}
        self._give = give
        self._ending = False
        self._inotify: INotify | None = None
        self._thread: Thread | None = None
        self._paths = [directory / name for name in self._calls]
        self._log = structlog.get_logger("wake")
        try:
            self._begin(directory)
        except OSError as error:
            text = "the daemon polls at its interval only"
            file = error.filename or directory
            self._log.error("wake_file_not_watched", file=str(file), error=str(error), message=text)

    def _begin(self, directory: Path) -> None:
        # Their directory is watched, for the files may be replaced; users can write in none of them.
        # For reading only: they may be SlurmUser's already.
        for path in self._paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            os.close(descriptor)
        self._inotify = INotify()
        self._inotify.add_watch(str(directory), flags.CLOSE_WRITE)
        self._thread = Thread(target=self._serve, name="omfs-wakeup", daemon=True)
        self._thread.start()

    def belong_to(self, uid: int) -> None:
        """Make this user their owner: SlurmUser, as whom the submit plug-in runs."""
        file = self._paths[0]
        try:
            others = [path for path in self._paths if path.lstat().st_uid != uid]
            if others and self._give is not None:
                self._give()
                return
            for file in others:
                os.chown(file, uid, -1, follow_symlinks=False)
        except (OSError, OmfsError) as error:
            text = "slurmctld cannot wake the daemon, which polls at its interval only"
            self._log.error("wake_file_owner_not_set", file=str(file), error=str(error), message=text)

    def _serve(self) -> None:
        inotify = self._inotify
        while inotify is not None and not self._ending:
            try:
                events = inotify.read(timeout=_READ_MS)
            except (OSError, ValueError):
                return  # closed
            touched = {event.name for event in events}
            for name, call in self._calls.items():
                if name in touched:
                    call()

    def close(self) -> None:
        self._ending = True
        if self._thread is not None:
            self._thread.join(timeout=2 * _READ_MS / 1000)
        if self._inotify is not None:
            self._inotify.close()
