"""The files whose touch ends the daemon's rest."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from omfs_daemon.config.schema import WAKE_FILE, WAKE_LATER_FILE
from omfs_daemon.daemon.wakeup import Wakeup
from tests.support.waiting import LIMIT


@pytest.mark.parametrize("name", [WAKE_FILE, WAKE_LATER_FILE])
def test_whoever_opens_a_file_for_writing_wakes(tmp_path: Path, name: str) -> None:
    woken = {WAKE_FILE: Event(), WAKE_LATER_FILE: Event()}
    wakeup = Wakeup(tmp_path, woken[WAKE_FILE].set, woken[WAKE_LATER_FILE].set)
    try:
        for _ in range(3):
            with (tmp_path / name).open("a"):
                pass
            assert woken[name].wait(LIMIT)
            woken[name].clear()
    finally:
        wakeup.close()
    assert not any(one.is_set() for one in woken.values())


def test_other_files_and_readers_do_not(tmp_path: Path) -> None:
    woken: list[int] = []
    seen = Event()
    wakeup = Wakeup(tmp_path, lambda: (woken.append(1), seen.set())[0], lambda: woken.append(2))
    try:
        (tmp_path / "heartbeat").write_text("1")
        (tmp_path / WAKE_FILE).read_text()
        (tmp_path / WAKE_LATER_FILE).read_text()
        (tmp_path / WAKE_FILE).open("a").close()
        assert seen.wait(LIMIT)
    finally:
        wakeup.close()
    assert woken == [1]


def test_a_directory_that_is_not_there_leaves_the_poll(tmp_path: Path) -> None:
    Wakeup(tmp_path / "gone", lambda: None, lambda: None).close()


@pytest.mark.parametrize("name", [WAKE_FILE, WAKE_LATER_FILE])
def test_a_planted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / name).symlink_to(target)
    Wakeup(directory, lambda: None, lambda: None).close()
    assert not target.exists()
