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
    "O_PATH open": "f = os.open('/', os.O_PATH)",
    "memory shared with another process (MAP_ANONYMOUS)": "import mmap; m = mmap.mmap(-1, 4096);"
    " p = os.fork() or (os.read(0, 1), os._exit(0))",
    "a duplicated descriptor, without omfs_children.so, open": "f = open('/etc/passwd'); g = os.dup(f.fileno())",
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
    found = fitness.unfit(process_tree(pid), may_lose_statuses=True)
    assert found.startswith(f"{what} by ") and (found.endswith(f"(pid {pid})") or "shared" in what)


@pytest.mark.parametrize("what", KEPT)
def test_what_dmtcp_restores_is_fit(holding: Callable[[list[str]], int], tmp_path: Path, what: str) -> None:
    assert fitness.unfit(process_tree(holding(python(KEPT[what], tmp_path)))) == ""


def test_background_jobs_of_a_shell_are_unfit_and_one_is_not(holding: Callable[[list[str]], int]) -> None:
    job = "(cat <&4; true) & "
    one = holding(["sh", "-c", f"exec 4<&0; {job}echo held; read x; wait"])
    assert fitness.unfit(process_tree(one), may_lose_statuses=True) == ""
    two = holding(["sh", "-c", f"exec 4<&0; {job}{job}echo held; read x; wait"])
    expected = f"background jobs started by sh (pid {two})"
    until(lambda: fitness.unfit(process_tree(two), may_lose_statuses=True) == expected)


def test_children_need_the_plug_in(holding: Callable[[list[str]], int], tmp_path: Path) -> None:
    child = "import mmap; p = os.fork() or (os.read(0, 1), os._exit(0))"
    bare = holding(python(child, tmp_path))
    found = fitness.unfit(process_tree(bare))
    assert found.startswith("several processes without omfs_children.so, children of python")
    assert found.endswith(f"(pid {bare})")
    library = tmp_path / "omfs_children.so"
    library.write_text("the plug-in")
    loaded = f"f = open({str(library)!r}); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"
    assert fitness.unfit(process_tree(holding(python(f"{child}; {loaded}", tmp_path)))) == ""


def test_a_process_that_inherits_children_is_unfit(holding: Callable[[list[str]], int], tmp_path: Path) -> None:
    library = tmp_path / "omfs_children.so"
    library.write_text("the plug-in")
    sign = f"import mmap; f = open({str(library)!r}); m = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, 0)"
    pid = holding(python(sign, tmp_path))
    assert fitness.unfit([pid]).startswith("children inherited (subreaper) by ")


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


@pytest.mark.parametrize("insists", [False, True])
def test_a_status_that_would_be_lost_is_kept_by_a_refusal(
    benches: Callable[..., Bench],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    insists: bool,
) -> None:
    monkeypatch.setattr(checkpoint, "_FIT_SECONDS", 0.1)
    monkeypatch.setenv("OMFS_LIB", str(place))
    bench = benches("5.0")
    if insists:
        bench.driver.accept_lost_statuses()
    program = bench.running("unwaited", place / "out")
    until((place / "out").exists)
    expected = "a child that has ended is not waited for" if insists else "several processes without omfs_children.so"
    with pytest.raises(CannotStop, match=expected) as fault:
        bench.stop(program)
    assert (fault.value.why, fault.value.alive) == ("unfit", True)
    assert program.own.begun == 0
    finish(place / "out")
    assert program.wait(LIMIT) == 3
    told = capfd.readouterr().err
    assert [told.count(f"{name}.so is not installed") for name in ("omfs_coordinator", "omfs_children")] == [1, 1]


def test_a_status_is_kept_by_the_plug_in(bench: Bench, place: Path) -> None:
    program = bench.running("unwaited", place / "out")
    until((place / "out").exists)
    for _ in range(2):
        program = bench.restart(*bench.stop(program))
    finish(place / "out")
    assert program.wait(LIMIT) == 3


def test_without_the_plug_in_dmtcp_loses_a_status(
    benches: Callable[..., Bench], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMFS_LIB", str(place))
    monkeypatch.setattr(fitness, "unfit", lambda *_: "")
    bench = benches("4.2.0")
    program = bench.running("unwaited", place / "out")
    until((place / "out").exists)
    program = bench.restart(*bench.stop(program))
    finish(place / "out")
    assert program.wait(LIMIT) == 127
