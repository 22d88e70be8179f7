"""SQLite files of the state directory: made, converted to this version's format, and opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from omfs_daemon.daemon.store.file_format import StateFile, log_conversion, refuse_unread
from omfs_daemon.errors import FormatError


def open_sqlite(path: Path, file: StateFile, tables: str, filling: str = "") -> sqlite3.Connection:
    """Usable from several threads. ``tables``: statements that make what is missing; ``filling``: those that fill it
    from what a file of an older format has.

    sqlite3.Error if the file is damaged. FormatError, and it is left as it was, if it cannot be made or converted, or
    if its format is not read.
    """
    database = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    try:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found != file.newest:
            refuse_unread(file, path, found or file.newest)  # what the header does not show yet after a crash
            _write_format(database, path, file, found, tables + (filling if found else ""))
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + tables)
    except BaseException:
        database.close()
        raise
    return database


def _write_format(database: sqlite3.Connection, path: Path, file: StateFile, found: int, changes: str) -> None:
    """Without a write-ahead log, so that the number is in the file's header as soon as its tables are."""
    try:
        database.executescript(
            f"PRAGMA journal_mode=DELETE; BEGIN IMMEDIATE; {changes} PRAGMA user_version={file.newest}; COMMIT;"
        )
    except sqlite3.OperationalError as error:
        what = f"converted from format {found} to {file.newest}" if found else "made"
        raise FormatError(f"{path}: cannot be {what}: {error}") from error
    if found:
        log_conversion(path, found, file.newest)
