"""Programs that checkpoint themselves: a signal, a mark, and what happens without one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run.drivers import processes
from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop, Ended, Program
from tests.support.waiting import LIMIT, wait_until

ANSWERS = """
import os, signal, sys, time
def keep(*_):
    {0}
signal.signal(signal.SIGUSR1, keep)
print("up", flush=True)
while True:
    time.sleep(0.01)
"""
MARK = 'open(os.environ["OMFS_MARK"], "w").close()'


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Any]:
    programs: list[Program] = []

    def start(code: str, again: bool = False) -> Program:
        command = [sys.executable, "-c", code]
        driver = Application(signal.SIGUSR1, command, os.environ, 0)
        start = driver.restart("", driver_image, str(tmp_path), 1) if again else driver.start(command, str(tmp_path))
        programs.append(start)
        return start

    driver_image: Any = None
    yield start
    for program in programs:
        program.kill()
        assert program.wait(0) is not None


def test_a_mark_is_the_program_s_word_whether_it_ends_or_not(running: Any) -> None:
    for last in ("sys.exit(0)", "sys.exit(3)", "pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"):
        program = running(ANSWERS.format(f"{MARK}; {last}"))
        wait_until(program.ready, "its handler")
        assert program.checkpoint("", LIMIT) == ([], "application", 0)
        assert program.wait(0) is not None


def test_an_end_without_a_mark_is_its_own(running: Any) -> None:
    program = running(ANSWERS.format("sys.exit(4)"))
    wait_until(program.ready, "its handler")
    with pytest.raises(Ended) as error:
        program.checkpoint("", LIMIT)
    assert error.value.code == 4


def test_no_mark_in_time_leaves_it_running_and_an_old_mark_does_not_count(running: Any, tmp_path: Path) -> None:
    program = running(ANSWERS.format("pass"))
    wait_until(program.ready, "its handler")
    (tmp_path / "mark").touch()
    with pytest.raises(CannotStop, match="did not create its mark") as error:
        program.checkpoint("", 0.3)
    assert (error.value.why, error.value.alive, program.wait(0)) == ("no_mark", True, None)


def test_a_mark_that_is_no_file_of_its_own_does_not_count(running: Any, tmp_path: Path) -> None:
    program = running(
        ANSWERS.format('os.path.lexists(os.environ["OMFS_MARK"]) or os.symlink("/etc/passwd", os.environ["OMFS_MARK"])')
    )
    wait_until(program.ready, "its handler")
    with pytest.raises(CannotStop, match="did not create its mark"):
        program.checkpoint("", 0.3)


def test_a_program_without_a_handler_is_not_sent_what_would_end_it(running: Any) -> None:
    program = running("import time; time.sleep(3600)")
    assert not program.ready()
    with pytest.raises(CannotStop, match="does not catch SIGUSR1") as error:
        program.checkpoint("", 1)
    assert (error.value.alive, program.wait(0)) == (True, None)


def test_a_blocked_signal_does_not_end_it_either(running: Any) -> None:
    code = "import os, signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]);"
    code += "\nwhile not signal.sigpending(): time.sleep(0.01)\nopen(os.environ['OMFS_MARK'], 'w').close()"
    program = running(code)
    wait_until(program.ready, "its mask")
    assert program.checkpoint("", LIMIT).files == []


def test_started_again_it_knows(running: Any) -> None:
    code = 'import os, sys; sys.exit(int("OMFS_RESTARTED" in os.environ))'
    assert running(code).wait(LIMIT) == 0
    assert running(code, again=True).wait(LIMIT) == 1


def test_nothing_of_it_is_left(running: Any) -> None:
    program = running("import subprocess; subprocess.run(['sleep', '3600'])")
    members = wait_until(
        lambda: len(processes.process_tree(program.pid)) == 2 and processes.process_tree(program.pid), "its child"
    )
    program.kill()
    assert not any(processes.alive(pid) for pid in members)


def test_what_cannot_be_started_has_a_reason(tmp_path: Path) -> None:
    for command, why in ([str(tmp_path / "none")], "no_program"), ([str(tmp_path)], "not_executable"):
        with pytest.raises(CannotStart) as error:
            Application(signal.SIGUSR1, command, os.environ, 0).start(command, str(tmp_path))
        assert error.value.why == why
