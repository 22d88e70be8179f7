"""What DMTCP would lose is found before a checkpoint is requested, and the program runs on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp import checkpoint, fitness
from omfs_daemon.omfs_run.drivers.driver import CannotStop
from omfs_daemon.omfs_run.drivers.processes import process_tree
from tests.support.dmtcp_bench import Bench, counted_further, finish, is_gapless, until
from tests.support.waiting import LIMIT

PREFACE = "import ctypes, fcntl, os, socket, sys; libc = ctypes.CDLL(None); "
LOST = {
    "O_TMPFILE open": "f = os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR, 0o600)",
    "memfd open": "f = os.memfd_create('x')",
    "timerfd open": "f = libc.timerfd_create(1, 0)",
    "inotify open": "f = libc.inotify_init1(0)",
    "pidfd open": "f = os.pidfd_open(os.getpid())",
    "a terminal of its own open": "f = os.openpty()",
    "a file locked (flock)": "f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
    "a file locked (lockf)": "f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX)",
    "a child that has ended is not waited for": "p = os.fork() or os._exit(0); os.waitid(os.P_PID, p, 0x1000004)",
}
KEPT = {
    "files": "f = open(sys.argv[1], 'w'); os.unlink(sys.argv[1])",
    "pipes and sockets": "f = os.pipe(); g = socket.socketpair(); h = socket.socket(); h.bind(('127.0.0.1', 0))",
    "event descriptors": "f = os.eventfd(0); g = os.open('/dev/null', os.O_RDONLY)",
}


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Callable[[list[str]], int]]:
    started: list[subprocess.Popen[str]] = []

    def start(command: list[str]) -> int:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process.pid

    yield start
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(LIMIT)
        assert process.stdout is not None
        process.stdout.close()


def python(text: str, tmp_path: Path) -> list[str]:
    return [sys.executable, "-c", f"{PREFACE}{text}\nprint('held', flush=True); input()", str(tmp_path / "file")]


@pytest.mark.parametrize("what", LOST)
def test_what_would_be_lost_is_named_with_its_process(
    holding: Callable[[list[str]], int], tmp_path: Path, what: str
) -> None:
    pid = holding(python(LOST[what], tmp_path))
    found = fitness.unfit(process_tree(pid))
    assert found.startswith(f"{what} by ") and found.endswith(f"(pid {pid})")


@pytest.mark.parametrize("what", KEPT)
def test_what_dmtcp_restores_is_fit(holding: Callable[[list[str]], int], tmp_path: Path, what: str) -> None:
    assert fitness.unfit(process_tree(holding(python(KEPT[what], tmp_path)))) == ""


def test_background_jobs_of_a_shell_are_unfit_and_one_is_not(holding: Callable[[list[str]], int]) -> None:
    job = "(cat <&4; true) & "
    one = holding(["sh", "-c", f"exec 4<&0; {job}echo held; read x <&4; wait"])
    assert fitness.unfit(process_tree(one)) == ""
    two = holding(["sh", "-c", f"exec 4<&0; {job}{job}echo held; read x <&4; wait"])
    until(lambda: fitness.unfit(process_tree(two)) == f"background jobs started by sh (pid {two})")


def test_a_process_that_dmtcp_does_not_know_is_unfit(holding: Callable[[list[str]], int], tmp_path: Path) -> None:
    pid = holding(python("pass", tmp_path))
    assert fitness.unfit([pid], {pid}) == ""
    assert "is not known to DMTCP" in fitness.unfit([pid], set())


def test_a_child_that_is_not_known_yet_is_waited_for(bench: Bench, place: Path) -> None:
    out, join = place / "out", Path(f"{place / 'out'}.join")
    program = bench.running("latecomer", out, 0, 0.02)
    until(out.exists)

    def sleep(seconds: float) -> None:
        join.touch()
        time.sleep(seconds)

    program._checkpoint._sleep = sleep
    if bench.is_real:
        join.touch()
    generation, image = bench.stop(program)
    assert sum(name.endswith(".dmtcp") for name in image.files) == 2
    program = bench.restart(generation, image)
    counted_further(place / "out.1", 2)
    finish(out)
    assert program.wait(LIMIT) == 3
    assert is_gapless(place / "out.1")


def test_a_status_that_would_be_lost_is_kept_by_a_refusal(
    bench: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_FIT_SECONDS", 0.1)
    program = bench.running("unwaited", place / "out")
    until((place / "out").exists)
    with pytest.raises(CannotStop, match="a child that has ended is not waited for") as fault:
        bench.stop(program)
    assert (fault.value.why, fault.value.alive) == ("unfit", True)
    assert program.own.begun == 0
    finish(place / "out")
    assert program.wait(LIMIT) == 3
