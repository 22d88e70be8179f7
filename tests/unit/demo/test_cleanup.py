"""How the demo ends: by a signal, and with nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from omfs_daemon.demo.cleanup import Interrupted, Interrupts, end_left
from tests.support.waiting import LIMIT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_what_may_be_interrupted_only(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted, match=f"ended by {number.name}"), interrupts.enabled():
            signal.raise_signal(number)
        signal.raise_signal(number)  # during the cleanup
    assert signal.getsignal(number) is before


def test_a_signal_that_came_before_interrupts_at_once() -> None:
    begun = False
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted), interrupts.enabled():
            begun = True
    assert not begun


def test_our_children_in_the_directory_are_ended_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "other").mkdir()
    left = subprocess.Popen(["sleep", "3600"], cwd=tmp_path / "demo")
    other = subprocess.Popen(["sleep", "3600"], cwd=tmp_path / "other")
    try:
        assert end_left(tmp_path / "demo") == []
        assert left.wait(LIMIT) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait(LIMIT)


def test_a_process_of_somebody_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omfs_daemon.demo.cleanup._LEAVE_LIMIT", 0.1)
    starter = subprocess.Popen(
        ["sh", "-c", "sleep 3600 & echo $!"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert starter.stdout is not None
    orphan = int(starter.stdout.readline())
    starter.wait(LIMIT)
    try:
        assert end_left(tmp_path) == [str(orphan)]
    finally:
        os.kill(orphan, signal.SIGKILL)
        starter.stdout.close()
