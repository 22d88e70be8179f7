"""The log in systemd's journal, by its native protocol: each field of an event can be searched for.

``journalctl OMFS_EVENT=preemption_started OMFS_ACCOUNT=bio``. The protocol: https://systemd.io/JOURNAL_NATIVE_PROTOCOL
"""

from __future__ import annotations

import array
import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

SOCKET = Path("/run/systemd/journal/socket")

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_OWN_FIELDS = ("event", "level", "timestamp", "exception")
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def is_read_by_systemd(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether what is written to the stream goes to systemd's journal (``$JOURNAL_STREAM``, systemd.exec(5))."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class SystemdJournal:
    """structlog's last processor: sends the event; JSON for the stream where there is no journal."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = path
        self._json = structlog.processors.JSONRenderer()

    def __call__(self, logger: WrappedLogger, name: str, event: EventDict) -> str | bytes:
        try:
            _send(journal_entry(event), self._path)
        except OSError:
            return self._json(logger, name, event)
        raise structlog.DropEvent


def journal_entry(event: Mapping[str, object]) -> bytes:
    """In journald's native format. MESSAGE has all in one printable line; OMFS_EVENT and OMFS_FIELD have the values as
    text, or as JSON where they are lists or mappings."""
    fields = {key: value for key, value in event.items() if key not in _OWN_FIELDS}
    line = " ".join(
        [str(event["event"]), *(f"{key}={json.dumps(value, default=str)}" for key, value in fields.items())]
    )
    if "exception" in event:
        line = f"{line}\n{event['exception']}"
    return b"".join(_lines(line, str(event.get("level", "info")), str(event["event"]), fields))


def _lines(line: str, level: str, name: str, fields: Mapping[str, object]) -> Iterator[bytes]:
    yield _field("MESSAGE", line)
    yield _field("PRIORITY", str(_PRIORITIES.get(level, 6)))
    yield _field("OMFS_EVENT", name)
    for key, value in fields.items():
        yield _field(f"OMFS_{key.upper()}", value if isinstance(value, str) else json.dumps(value, default=str))


def _field(name: str, value: str) -> bytes:
    """With its length where the value has more than one line: it could be taken for another field."""
    text = value.encode(errors="backslashreplace")
    if b"\n" in text:
        return name.encode() + b"\n" + len(text).to_bytes(8, "little") + text + b"\n"
    return name.encode() + b"=" + text + b"\n"


def _send(entry: bytes, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(1.0)
        connection.connect(str(path))
        try:
            connection.send(entry)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            _send_as_file(entry, connection)


def _send_as_file(entry: bytes, connection: socket.socket) -> None:
    """What is larger than a datagram may be goes in a sealed file in memory."""
    with closing(os.fdopen(os.memfd_create("omfs-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "wb")) as file:
        file.write(entry)
        file.flush()
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        connection.sendmsg([], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
