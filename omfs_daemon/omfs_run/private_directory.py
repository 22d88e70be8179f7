"""The directory of a job's checkpoints, opened so that no other user can redirect our reads and writes."""

import os
import stat
from typing import List, Tuple

_LINKS = 40  # the kernel's limit
_OTHERS_WRITE = stat.S_IWOTH
_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadDirectory(Exception):
    """The path cannot be used; the text says what is wrong with it."""


def open_private(path: str, uid: int) -> Tuple[int, str]:
    """Open the directory, created (0700) if missing; returns its descriptor and its path without links.

    The path must be absolute, and the directory ours and writable by nobody else. Symbolic links on the way are
    followed only if they are root's or ours, and no parent may let everybody replace its entries (writable for others,
    without the sticky bit): tools are given paths, and could be made to restart what another user put there after our
    check. The owner and the group of a parent are trusted, as they are with all else that the job has there.
    """
    if not path.startswith("/"):
        raise BadDirectory("{}: not an absolute path".format(path))
    if not path.isprintable() or ".." in path.split("/"):
        raise BadDirectory("{}: control characters and .. are not allowed".format(path))
    walk = _Walk(uid)
    try:
        walk.down(path)
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=walk.here)
    except OSError as error:
        raise BadDirectory("{}: {}".format(error.filename or path, error.strerror)) from None
    finally:
        walk.close()
    state = os.fstat(descriptor)
    if state.st_uid != uid or stat.S_IMODE(state.st_mode) & 0o022:
        os.close(descriptor)
        owner = "owned by uid {}, mode {:04o}".format(state.st_uid, stat.S_IMODE(state.st_mode))
        raise BadDirectory("{} ({}): must be yours and writable by nobody else".format(path, owner))
    return descriptor, walk.path()


class _Walk:
    """A walk from the root, one component at a time, each opened relative to its parent."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._names: List[str] = []
        self._fds = [os.open("/", _WALK)]
        self._links = 0

    @property
    def here(self) -> int:
        return self._fds[-1]

    def path(self) -> str:
        return "/" + "/".join(self._names)

    def close(self) -> None:
        for descriptor in self._fds:
            os.close(descriptor)
        self._fds = []

    def down(self, path: str) -> None:
        if path.startswith("/"):
            while self._names:
                self._up()
        for name in path.split("/"):
            if name == ".." and self._names:
                self._up()
            elif name not in ("", ".", ".."):
                self._step(name)

    def _up(self) -> None:
        self._names.pop()
        os.close(self._fds.pop())

    def _step(self, name: str) -> None:
        mode = os.fstat(self.here).st_mode
        if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
            text = "{}: below a directory that anybody may write to, without the sticky bit"
            raise BadDirectory(text.format(os.path.join(self.path(), name)))
        try:
            state = os.stat(name, dir_fd=self.here, follow_symlinks=False)
        except FileNotFoundError:
            os.mkdir(name, 0o700, dir_fd=self.here)
        else:
            if stat.S_ISLNK(state.st_mode):
                self._follow(name, state)
                return
        self._fds.append(os.open(name, _WALK, dir_fd=self.here))
        self._names.append(name)

    def _follow(self, name: str, link: os.stat_result) -> None:
        where = os.path.join(self.path(), name)
        self._links += 1
        if self._links > _LINKS:
            raise BadDirectory("{}: too many symbolic links".format(where))
        if link.st_uid not in (0, self._uid):
            raise BadDirectory("{}: a symbolic link of another user (uid {})".format(where, link.st_uid))
        self.down(os.readlink(name, dir_fd=self.here))
