"""The log in systemd's journal: each value is a field, and none can be taken for another."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from omfs_daemon.daemon.log import set_up
from omfs_daemon.daemon.systemd_journal import SystemdJournal, is_read_by_systemd, journal_entry
from tests.support.waiting import LIMIT


def fields(entry: bytes) -> dict[str, str]:
    """As journald reads it."""
    found, rest = {}, entry
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(rest[:8], "little")
            value, end, rest = rest[8 : 8 + length], rest[8 + length : 9 + length], rest[9 + length :]
            assert end == b"\n"
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.settimeout(LIMIT)
        yield listening


def test_each_value_is_a_field() -> None:
    event = {"event": "preemption_started", "level": "warning", "timestamp": "2026", "account": "bio", "victims": [7]}
    assert fields(journal_entry(event)) == {
        "MESSAGE": 'preemption_started account="bio" victims=[7]',
        "PRIORITY": "4",
        "OMFS_EVENT": "preemption_started",
        "OMFS_ACCOUNT": "bio",
        "OMFS_VICTIMS": "[7]",
    }


def test_what_users_write_makes_no_field_and_no_control_sequence() -> None:
    event = {"event": "order_refused", "level": "error", "error": "bad\nPRIORITY=0\n\x1b[2J\udcff"}
    found = fields(journal_entry(event))
    assert found["PRIORITY"] == "3" and found["OMFS_ERROR"] == "bad\nPRIORITY=0\n\x1b[2J\\udcff"
    assert found["MESSAGE"].isprintable()


def test_a_traceback_is_in_the_message() -> None:
    found = fields(journal_entry({"event": "root_request_failed", "level": "error", "exception": "Traceback\n  x"}))
    assert found["MESSAGE"] == "root_request_failed\nTraceback\n  x"


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_an_event_of_any_size_arrives(journald: socket.socket, size: int) -> None:
    with pytest.raises(structlog.DropEvent):
        SystemdJournal(Path(journald.getsockname()))(None, "info", {"event": "paused", "reason": "x" * size})
    entry, descriptors, _, _ = socket.recv_fds(journald, 1 << 20, 1)
    for descriptor in descriptors:
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0)
            entry = file.read()
    assert fields(entry)["OMFS_REASON"] == "x" * size


def test_without_a_journal_the_line_goes_to_the_stream(tmp_path: Path) -> None:
    line = SystemdJournal(tmp_path / "nobody")(None, "info", {"event": "paused"})
    assert json.loads(line) == {"event": "paused"}


def test_it_is_chosen_where_systemd_reads_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as stream:
        found = os.fstat(stream.fileno())
        assert is_read_by_systemd(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not is_read_by_systemd(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
        assert not is_read_by_systemd(stream, {})
    assert not is_read_by_systemd(io.StringIO(), {"JOURNAL_STREAM": "1:1"})


def test_elsewhere_auto_is_json() -> None:
    stream = io.StringIO()
    set_up("auto", "info", stream)
    structlog.get_logger("omfsd").info("paused", by="root")
    assert json.loads(stream.getvalue())["event"] == "paused"
