"""The journal: an append-only file, one record per line, synced before anything is done.

A line is ``FORMAT CRC32 JSON``, with the same format in all lines. A torn last line (the machine died while it was
written) is cut off: what it announced was never begun. Damage anywhere else, a format that this version does not read,
or another cluster stops the daemon.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from omfs_daemon.daemon.store.disk import open_own, sync_directory
from omfs_daemon.daemon.store.file_format import JOURNAL, format_of, log_conversion
from omfs_daemon.daemon.store.json_text import read_json
from omfs_daemon.errors import FormatError, JournalError
from omfs_daemon.preemption.state import ClusterNamed, Record, State, WholeState, from_json, to_json
from omfs_daemon.preemption.state_fold import StateFold, state_after

COMPACT_AT = 4 << 20
"""Bytes; a larger file is replaced by one record that holds the whole state."""


class Journal:
    """Owns the file and the state that its records add up to. A file of an older format is replaced when it is opened.
    ``cluster``: as Slurm says, "" if it has not answered; nothing is changed in the journal of another one."""

    def __init__(self, path: Path, cluster: str = "") -> None:
        self.path = path
        self.state, self._size, torn, found = replay(path)
        refuse_other_cluster(path, self.state, cluster)
        self._is_torn = False
        try:
            self._fd = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            if torn:
                os.ftruncate(self._fd, self._size)
            sync_directory(path.parent)
        except OSError as error:
            raise JournalError(f"{path}: cannot be opened for writing: {error.strerror}") from error
        if found != JOURNAL.newest:
            self._convert(found)

    def _convert(self, found: int) -> None:
        try:
            self.compact_if_large(at=0)
        except JournalError:
            self.close()
            raise
        log_conversion(self.path, found, JOURNAL.newest)

    def belong_to(self, cluster: str) -> None:
        """Write down whose jobs these are; JournalError if they are those of another cluster."""
        refuse_other_cluster(self.path, self.state, cluster)
        if cluster and not self.state.cluster:
            self.write(ClusterNamed(cluster))

    def write(self, *records: Record) -> None:
        """Append and fsync. When this returns, the records survive a crash; when it raises, none of them count."""
        data = b"".join(_line(record) for record in records)
        if self._is_torn:
            self._cut_back()
        try:
            if self._is_torn:
                raise OSError(5, "a torn line cannot be cut off")
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fdatasync(self._fd)
        except OSError as error:
            self._cut_back()
            raise JournalError(
                f"{self.path}: cannot be written ({error.strerror}): no job is preempted until it can"
            ) from error
        self._size += len(data)
        self.state = state_after(self.state, records)

    def _cut_back(self) -> None:
        """Cut off a torn line; until that succeeds nothing more is written."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._is_torn = True
        else:
            self._is_torn = False

    def compact_if_large(self, at: int = COMPACT_AT) -> bool:
        """Replace a large file by one that holds only the present state; atomic."""
        if self._size < at:
            return False
        temporary = self.path.with_suffix(".new")
        data = _line(WholeState(self.state))
        try:
            temporary.unlink(missing_ok=True)
            fd = open_own(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
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


class ReadJournal(NamedTuple):
    """The state that a file adds up to, the bytes of its whole lines, whether a torn line follows, and its format."""

    state: State
    size: int
    is_torn: bool
    format: int


def replay(path: Path) -> ReadJournal:
    """Changes nothing. JournalError if the file cannot be read, is damaged, or has a format that is not read."""
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return ReadJournal(State(), 0, False, JOURNAL.newest)
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        found = format_of(JOURNAL, path)
    except FormatError as error:
        raise JournalError(str(error)) from error
    fold, size = StateFold(State()), 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            fold.add(_record(line, found))
        except (JournalError, ValueError) as error:  # ValueError: of references that are none
            if number == len(lines) and not line.endswith(b"\n"):
                return ReadJournal(fold.state, size, True, found)
            raise JournalError(
                f"{path}:{number}: {error}; move the file away to start without it: "
                "what is held or suspended is then found by its mark in Slurm"
            ) from error
        size += len(line)
    return ReadJournal(fold.state, size, False, found)


def refuse_other_cluster(path: Path, state: State, cluster: str) -> None:
    """JournalError if the state is that of another cluster: job ids mean other jobs there."""
    if cluster and state.cluster not in ("", cluster):
        raise JournalError(
            f"{path}: is the journal of cluster {state.cluster}, and Slurm says ClusterName={cluster}: "
            "correct slurm.conf or daemon.state_dir, or move the file away and start again"
        )


def _line(record: Record) -> bytes:
    text = json.dumps(to_json(record), separators=(",", ":"), ensure_ascii=True).encode()
    return b"%d %08x %s\n" % (JOURNAL.newest, zlib.crc32(text), text)


def _record(line: bytes, written: int) -> Record:
    """``written``: the format of the file."""
    number, checksum, text = [*line.rstrip(b"\n").split(b" ", 2), b"", b""][:3]
    is_whole = line.endswith(b"\n") and number == b"%d" % written
    if not is_whole or checksum != b"%08x" % zlib.crc32(text):
        raise JournalError("the line is damaged")
    try:
        record = read_json(text)
    except ValueError:
        raise JournalError("the line is damaged") from None
    return from_json(record)
