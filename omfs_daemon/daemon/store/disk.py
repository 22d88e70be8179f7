"""Synced writes to files and directories."""

from __future__ import annotations

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make a rename in this directory survive a crash; OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def append_synced(path: Path, line: str) -> None:
    """Append a line; a torn last line is ended first, so that it does not damage this one."""
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
