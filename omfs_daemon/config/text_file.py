"""Texts that people write: never more than fits in memory, and never waited for where nobody writes them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from omfs_daemon.errors import ConfigError

MOST_BYTES = 8 << 20


def read_text(path: Path) -> str:
    """The text of a regular file; ConfigError if it is none, cannot be read, has more than ``MOST_BYTES``, or is not
    UTF-8."""
    with _opened(path) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigError(f"{path}: must be a regular file")
        return text_of(file, str(path))


def read_input(path: Path) -> str:
    """Likewise, but also of a pipe or a terminal (``/dev/stdin``, ``<(command)``): what is named for one command."""
    with _opened(path) as file:
        descriptor = file.fileno()
        begin = _read(file, 1, str(path))  # of a pipe: None while it is empty, b"" if there is no writer either
        if begin == b"" and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path}: is an empty pipe into which nobody writes")
        os.set_blocking(descriptor, True)
        return text_of(file, str(path), begin or b"")


def text_of(file: BinaryIO, source: str, begin: bytes = b"") -> str:
    """What is left in an open file, after ``begin``. Errors as of ``read_text``, and name ``source``."""
    found = begin + (_read(file, MOST_BYTES + 1, source) or b"")
    if len(found) > MOST_BYTES:
        raise ConfigError(f"{source}: is too long: must have at most {MOST_BYTES >> 20} MiB")
    try:
        return found.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: byte {error.start + 1} is not UTF-8, which TOML and CSV must be") from error


def _opened(path: Path) -> BinaryIO:
    """A FIFO is not waited for, either."""
    try:
        return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise ConfigError(f"{str(path)!r}: cannot be read: {error}") from error


def _read(file: BinaryIO, most: int, source: str) -> bytes | None:
    try:
        return file.read(most)
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read: {error.strerror}") from error
