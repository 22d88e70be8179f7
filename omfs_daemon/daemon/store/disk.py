"""Synced writes to files and directories."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import structlog


def sync_directory(path: Path) -> None:
    """Make a rename in this directory survive a crash; OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_renamed(path: Path) -> None:
    """Likewise after a change that is in force: where it fails, which is logged, a crash may undo the change."""
    try:
        sync_directory(path)
    except OSError as error:
        text = "what was changed is in force, but a crash may undo it"
        structlog.get_logger("store").warning("not_synced", path=str(path), error=str(error), message=text)


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a regular file, made with ``mode`` if ``flags`` have O_CREAT. OSError for a link, for a file of
    another user than this process's, its directory's, and root, and for one that others could have written."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EPERM, "is no regular file")
        if found.st_uid not in (os.geteuid(), 0, path.parent.stat().st_uid):
            raise OSError(errno.EPERM, f"belongs to uid {found.st_uid}")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(errno.EPERM, f"mode {stat.S_IMODE(found.st_mode):04o}: others may write it: chmod go-w")
    except OSError:
        os.close(fd)
        raise
    return fd


def make_own(path: Path) -> None:
    """Make the file if it is not there, and have nobody else read it; OSError as ``open_own``."""
    fd = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(fd).st_mode & (stat.S_IRGRP | stat.S_IROTH):
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def write_synced(path: Path, text: str) -> None:
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def append_synced(path: Path, line: str) -> None:
    """Append a line; a torn last line is ended first, so that it does not damage this one."""
    with os.fdopen(open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
