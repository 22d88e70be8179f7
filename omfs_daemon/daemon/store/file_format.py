"""The files in the state directory that outlast an upgrade, and their formats: the one table of both.

Each version reads every format from ``oldest`` on, and writes ``newest``. A change of what is written to a file makes a
new format, with a fixture of it in tests/fixtures/state; a format that was released is never dropped. Formats below
``oldest`` are those of development versions.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import structlog

from omfs_daemon.config.entitlement_text import FORMAT_LINE
from omfs_daemon.daemon.store.disk import open_own
from omfs_daemon.daemon.store.json_text import read_json
from omfs_daemon.errors import FormatError, OmfsError

_FIRST_FORMAT = re.compile(rb"[0-9a-f]{8} ")
_NUMBERED = re.compile(rb"([0-9]{1,9}) [0-9a-f]{8} ")
_SQLITE = b"SQLite format 3\0"
_SQLITE_HEADER = 100
_USER_VERSION_AT = 60  # in the header (sqlite.org/fileformat.html)
_MAX_FORMAT = 999  # no version of omfs-daemon writes a larger number


def _opened(path: Path) -> BinaryIO:
    """OSError also for a link, a FIFO, and what others could have written."""
    return os.fdopen(open_own(path, os.O_RDONLY), "rb")


def _text(path: Path) -> str:
    with _opened(path) as file:
        return file.read().decode("utf-8", "replace")


def _in_first_line(path: Path) -> int | None:
    """Of a journal, which is never written in two formats; None of one that is empty or damaged."""
    with _opened(path) as file:
        begin = file.read(20)
    numbered = _NUMBERED.match(begin)
    if numbered is not None:
        return int(numbered.group(1))
    return 1 if _FIRST_FORMAT.match(begin) else None


def _in_last_line(path: Path) -> int | None:
    """Of a log, each of whose lines names its own format: the last whole one."""
    last = b""
    with _opened(path) as file:
        for line in file:
            last = line if line.endswith(b"\n") else last
    try:
        found = read_json(last)["format"]
    except (ValueError, TypeError, KeyError):
        return 1 if last else None
    return found if isinstance(found, int) else 1


def _in_toml(path: Path) -> int | None:
    line = FORMAT_LINE.search(_text(path))
    return int(line.group(1)) if line is not None else 1


def _in_json(path: Path) -> int | None:
    """Of one object; None if it is damaged."""
    try:
        found = read_json(_text(path))["format"]
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, int) else None


def _in_sqlite_header(path: Path) -> int | None:
    """``PRAGMA user_version``, read from the file: SQLite would leave files beside one that it opens. None of one that
    is empty or damaged."""
    with _opened(path) as file:
        header = file.read(_SQLITE_HEADER)
    if len(header) < _SQLITE_HEADER or not header.startswith(_SQLITE):
        return None
    (version,) = struct.unpack_from(">i", header, _USER_VERSION_AT)
    return version or 1


class StateFile(NamedTuple):
    """number      of the format of a file, None where it tells none; only reads, OSError if it cannot
    conversion  what this version does with an older format
    advice      what to do about one that it does not read
    is_needed   omfsd does not start without reading it
    """

    name: str
    oldest: int
    newest: int
    number: Callable[[Path], int | None]
    conversion: str
    advice: str
    is_needed: bool = True

    @property
    def known(self) -> str:
        """The formats that this version reads, in words."""
        return str(self.newest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


JOURNAL = StateFile(
    "journal",
    oldest=11,
    newest=13,
    number=_in_first_line,
    conversion="converts it at start",
    advice="move it away and start again; what is held or suspended is then found by its mark in Slurm, "
    "and `omfs failsafe` releases it if omfsd cannot run",
)
ENTITLEMENTS = StateFile(
    "entitlements.toml",
    oldest=1,
    newest=2,
    number=_in_toml,
    conversion="converts it with the next change",
    advice="move it away, start omfsd, and put it into force again with `omfs entitlements import FILE`",
)
EXEMPTIONS = StateFile(
    "exemptions.json",
    oldest=1,
    newest=1,
    number=_in_json,
    conversion="converts it with the next change",
    advice="move it away, start omfsd, and exempt again with `omfs exempt add`",
)
AUDIT = StateFile(
    "audit.jsonl",
    oldest=1,
    newest=1,
    number=_in_last_line,
    conversion="leaves its lines and adds new ones in its own format",
    advice="move it away and start again: a new one is begun",
)
HISTORY = StateFile(
    "history.sqlite",
    oldest=2,
    newest=3,
    number=_in_sqlite_header,
    conversion="converts it at start",
    advice="move it away and start again: only what is shown of the past is lost",
)
ENDED_JOBS = StateFile(
    "ended_jobs.sqlite",
    oldest=1,
    newest=2,
    number=_in_sqlite_header,
    conversion="converts it at start",
    advice="move it away and start again: only what was learned is lost",
    is_needed=False,
)
STATE_FILES = (JOURNAL, ENTITLEMENTS, EXEMPTIONS, AUDIT, HISTORY, ENDED_JOBS)
"""The history also holds what dry runs would have done (`omfs shadow`)."""


def format_of(file: StateFile, path: Path) -> int:
    """The format of the file at ``path``; ``newest`` of one that tells none: it is not there, empty, or damaged, which
    opening it shows. Only reads.

    FormatError, with one line, for a format that this version does not read.
    """
    try:
        found = file.number(path)
    except OSError:
        found = None
    if found is None:
        return file.newest
    refuse_unread(file, path, found)
    return found


def refuse_unread(file: StateFile, path: Path, found: int) -> None:
    """FormatError, with one line, for a format that this version does not read."""
    if not 0 < found <= _MAX_FORMAT:
        raise FormatError(f"{path}: is damaged, or no {file.name} of omfsd: {file.advice}")
    if file.oldest <= found <= file.newest:
        return
    writer, advice = "an earlier development version", file.advice
    if found > file.newest:
        writer, advice = "a later version", f"install that version again, or {file.advice}"
    formats = f"format {found}; this version reads format {file.known}"
    raise FormatError(f"{path}: was written by {writer} of omfs-daemon ({formats}): {advice}")


def refuse_unread_files(state_dir: Path, files: Iterable[StateFile] | None = None) -> None:
    """For the first of these files (default: of all) without which omfsd does not start: FormatError if this version
    does not read it, OmfsError if it cannot be opened."""
    for file in STATE_FILES if files is None else files:
        if not file.is_needed:
            continue
        path = state_dir / file.name
        try:
            os.close(open_own(path, os.O_RDONLY))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OmfsError(f"{path}: cannot be opened: {error.strerror}") from error
        format_of(file, path)


def log_conversion(path: Path, found: int, newest: int) -> None:
    log = structlog.get_logger("store")
    log.info("state_file_converted", file=str(path), found=found, written=newest)
