"""Files of all kinds, as operators name them: read, or refused in one line, and never waited for in vain."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from omfs_daemon.config.load import load
from omfs_daemon.config.text_file import MOST_BYTES, read_input, read_text
from omfs_daemon.errors import ConfigError


def test_a_file_is_read_with_plain_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes("é = 1\r\nb = 2\n".encode())
    assert read_text(path) == read_input(path) == "é = 1\nb = 2\n"
    path.write_bytes(b"")
    assert read_text(path) == read_input(path) == ""


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for reader in (read_text, read_input):
        with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
            reader(tmp_path)
        with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
            reader(tmp_path / "a\0b")


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.touch()
    os.truncate(path, MOST_BYTES)
    assert len(read_text(path)) == MOST_BYTES
    os.truncate(path, MOST_BYTES + 1)
    for reader in (read_text, read_input):
        with pytest.raises(ConfigError, match="is too long: must have at most 8 MiB"):
            reader(path)


def test_the_daemons_configuration_is_a_regular_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(ConfigError, match=f"{path}: must be a regular file"):
            load(path)


def test_a_pipe_is_read_to_its_end_once_somebody_writes() -> None:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(b"a" * 100_000 + b"\n")

    writer = Thread(target=write)
    writer.start()
    assert read_input(Path(f"/dev/fd/{reading}")) == "a" * 100_000 + "\n"
    writer.join()
    os.close(reading)


def test_a_pipe_into_which_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is an empty pipe into which nobody writes"):
        read_input(pipe)
