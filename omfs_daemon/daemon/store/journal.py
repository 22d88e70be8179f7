"""The journal: an append-only file, one record a line, on disk before anything is done.

A line is ``CRC32 JSON``. A last line that is torn (the machine died while it was written) is cut off, for what it
announced was never begun; damage anywhere else stops the daemon rather than let it guess.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

from omfs_daemon.daemon.store.disk import sync_directory
from omfs_daemon.preemption.state import Record
from omfs_daemon.preemption.state import Remembered
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state import apply
from omfs_daemon.preemption.state import from_json
from omfs_daemon.preemption.state import to_json
from omfs_daemon.errors import JournalError

COMPACT_AT = 4 << 20
"""Bytes after which the file is replaced by one record that holds the whole state."""


class Journal:
    """Owns the file and the state that it adds up to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state, self._size, torn = replay(path)
        self._is_torn = False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if torn:
                os.ftruncate(self._fd, self._size)
            sync_directory(path.parent)
        except OSError as error:
            raise JournalError(f"{path}: cannot be opened for writing: {error.strerror}") from error

    def write(self, *records: Record) -> None:
        """Append and fsync. When this returns, the records survive a crash; when it raises, none of them count."""
        data = b"".join(_line(record) for record in records)
        if self._is_torn:
            self._cut_back()
        try:
            if self._is_torn:
                raise OSError(5, "a half line cannot be cut off")
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fdatasync(self._fd)
        except OSError as error:
            self._cut_back()
            raise JournalError(
                f"{self.path}: cannot be written ({error.strerror}): nothing is stopped until it can"
            ) from error
        self._size += len(data)
        for record in records:
            self.state = apply(self.state, record)

    def _cut_back(self) -> None:
        """Leave no half line behind; until that succeeds nothing more is written."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._is_torn = True
        else:
            self._is_torn = False

    def compact_if_large(self, at: int = COMPACT_AT) -> bool:
        """Replace a large file by one that holds the present state only; atomic."""
        if self._size < at:
            return False
        temporary = self.path.with_suffix(".new")
        data = _line(Remembered(self.state))
        try:
            temporary.unlink(missing_ok=True)
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, data) != len(data):
                    raise OSError(28, "No space left on device")
                os.fsync(fd)
                temporary.replace(self.path)
            except OSError:
                os.close(fd)
                raise
            # From here on the path names the new file, whatever else fails.
            os.close(self._fd)
            self._fd, self._size, self._is_torn = fd, len(data), False
            sync_directory(self.path.parent)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be compacted: {error.strerror}") from error
        return True

    def close(self) -> None:
        os.close(self._fd)


def replay(path: Path) -> tuple[State, int, bool]:
    """The state that the file adds up to, the bytes of whole lines, and whether a torn line follows them."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return State(), 0, False
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
    state, size = State(), 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            state = apply(state, _record(line))
        except JournalError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return state, size, True
            raise JournalError(
                f"{path}:{number}: {error}; move the file away to start without it: "
                "what is held or suspended is then found by its mark in Slurm"
            ) from error
        size += len(line)
    return state, size, False


def _line(record: Record) -> bytes:
    text = json.dumps(to_json(record), separators=(",", ":"), ensure_ascii=True).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _record(line: bytes) -> Record:
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        raise JournalError("the line is damaged")
    return from_json(json.loads(text))
