"""A lock: one omfs-node at a time for a job on a node."""

import contextlib
import errno
import fcntl
import os
import stat
import time

from omfs_daemon.omfs_node.movers.mover import CannotMove

_PAUSE = 0.05


class JobLock:
    """A lock file in a directory that only root may enter; released at the end of the context or of the process."""

    def __init__(self, directory: str, name: str, deadline: float) -> None:
        """Wait for the lock until the deadline; raises CannotMove: busy, or fault if the directory is not root's."""
        _make(directory)
        self._path = os.path.join(directory, name + ".lock")
        self._descriptor = self._take(deadline)

    def __enter__(self) -> "JobLock":
        return self

    def __exit__(self, *_: object) -> None:
        os.unlink(self._path)  # before the release: whoever waits for this file sees that it was removed
        os.close(self._descriptor)

    def _take(self, deadline: float) -> int:
        while True:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, self._path):
                    return descriptor
                os.close(descriptor)
                continue
            except OSError as error:
                os.close(descriptor)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
            if time.monotonic() > deadline:
                raise CannotMove("busy", "another omfs-node is working on this job")
            time.sleep(_PAUSE)


def _make(directory: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
        raise CannotMove("fault", "{} must be root's directory with mode 0700".format(directory))


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
