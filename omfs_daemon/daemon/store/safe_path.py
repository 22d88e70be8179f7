"""Whether others could put something else in the place of a directory, or of what is in it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from omfs_daemon.errors import ConfigError


def refuse_unsafe_path(path: Path, uid: int) -> None:
    """ConfigError if somebody but root and ``uid`` owns or may write the directory, one above it, or a link to it.
    Above it, a sticky bit will do (/tmp)."""
    for part in _parts(path):
        found = part.lstat()
        if found.st_uid not in (0, uid):
            remedy = "chown it" if part == path.absolute() else "use a directory in one of root's"
            raise ConfigError(f"{part}: belongs to uid {found.st_uid}, who could replace {path}: {remedy}")
        is_shared = stat.S_ISDIR(found.st_mode) and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if is_shared and (part == path.resolve() or not found.st_mode & stat.S_ISVTX):
            mode = stat.S_IMODE(found.st_mode)
            raise ConfigError(f"{part}: mode {mode:04o}: must not be writable for others: chmod go-w {part}")


def _parts(path: Path) -> Iterator[Path]:
    """The path, all above it, and the same of what links lead to."""
    absolute = path.absolute()
    yield from dict.fromkeys([absolute, *absolute.parents, absolute.resolve(), *absolute.resolve().parents])
