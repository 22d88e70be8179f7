"""The file whose touch ends the daemon's rest."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from omfs_daemon.config.schema import WAKE_FILE
from omfs_daemon.daemon.wakeup import Wakeup
from tests.support.waiting import LIMIT


def test_whoever_opens_the_file_for_writing_wakes(tmp_path: Path) -> None:
    woken = Event()
    wakeup = Wakeup(tmp_path, woken.set)
    try:
        for _ in range(3):
            with (tmp_path / WAKE_FILE).open("a"):
                pass
            assert woken.wait(LIMIT)
            woken.clear()
    finally:
        wakeup.close()


def test_other_files_and_readers_do_not(tmp_path: Path) -> None:
    woken: list[int] = []
    seen = Event()
    wakeup = Wakeup(tmp_path, lambda: (woken.append(1), seen.set())[0])
    try:
        (tmp_path / "heartbeat").write_text("1")
        (tmp_path / WAKE_FILE).read_text()
        (tmp_path / WAKE_FILE).open("a").close()
        assert seen.wait(LIMIT)
    finally:
        wakeup.close()
    assert len(woken) == 1


def test_a_directory_that_is_not_there_leaves_the_poll(tmp_path: Path) -> None:
    Wakeup(tmp_path / "gone", lambda: None).close()


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / WAKE_FILE).symlink_to(target)
    Wakeup(directory, lambda: None).close()
    assert not target.exists()
