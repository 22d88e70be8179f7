"""Rehearsals: a copy of a fresh checkpoint is restarted before the program is given up, and executes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp import rehearsal
from omfs_daemon.omfs_run.drivers.dmtcp.dmtcp_driver import Dmtcp
from omfs_daemon.omfs_run.drivers.dmtcp.hold import ProcessHold
from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.drivers.dmtcp.rehearsal_safety import harm
from omfs_daemon.omfs_run.drivers.driver import CannotStart, CannotStop
from omfs_daemon.omfs_run.memory_room import memory_room
from tests.support.dmtcp_bench import Bench, counted_further, finish, is_gapless, numbers, until
from tests.support.waiting import LIMIT


@pytest.fixture
def rehearsing(bench: Bench) -> Bench:
    bench.driver.rehearse_checkpoints()
    assert bench.driver.version()
    return bench


def restarts(program: DmtcpProgram) -> list[Path]:
    """The starts in the program's scratch directory: its own first, then those of copies."""
    return sorted(Path(program.scratch.run).glob("start-*"))


def test_a_checkpoint_counts_when_a_copy_of_it_was_restarted(rehearsing: Bench, place: Path) -> None:
    program = rehearsing.running("children", place / "out", 0, 0.02)
    for _ in range(2):
        until(lambda: len(numbers(place / "out.0")) > 2 and len(numbers(place / "out.1")) > 2)
        generation, image = rehearsing.stop(program)
        assert len(restarts(program)) == 2
        assert rehearsing.left() == []
        program = rehearsing.restart(generation, image)
        counted_further(place / "out.0", 2)
    finish(place / "out")
    assert program.wait(LIMIT) == 5
    assert is_gapless(place / "out.0") and is_gapless(place / "out.1")


def test_the_copy_executes_nothing_and_the_program_neither(
    rehearsing: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the program executes shows in files. Somebody else writes to one, too, and it is not cut."""
    program = rehearsing.running("writer", place / "out")
    paths = [place / "out.0", place / "out.1"]
    until(lambda: all(path.exists() and path.stat().st_size > 100 for path in paths))
    seen: list[list[int]] = []
    require_held = DmtcpProgram.require_held

    def sizes() -> list[int]:
        return [path.stat().st_size for path in paths]

    def watched(copy: DmtcpProgram, hold: ProcessHold, count: int, deadline: float) -> None:
        with paths[0].open("a") as file:
            file.write("other")
        seen.append(sizes())
        require_held(copy, hold, count, deadline)
        assert count == 2
        time.sleep(0.5)  # ample time for a program that writes without a pause
        seen.append(sizes())

    monkeypatch.setattr(DmtcpProgram, "require_held", watched)
    generation, image = rehearsing.stop(program)
    assert len(seen) == 2 and seen[0] == seen[1] == sizes()
    assert paths[0].read_text().count("other") == 1
    program = rehearsing.restart(generation, image)
    until(lambda: all(now > then for now, then in zip(sizes(), seen[1], strict=True)))
    finish(place / "out")
    assert program.wait(LIMIT) == 5


def test_a_program_of_which_no_copy_restarts_goes_on(
    rehearsing: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = rehearsing.running("children", place / "out", 0, 0.02)
    until(lambda: len(numbers(place / "out.0")) > 2 and len(numbers(place / "out.1")) > 2)
    assert program.rehearsal is not None
    restart = program.rehearsal.restart

    def spoiled(directory: str, names: Sequence[str], within: float) -> None:
        (Path(directory) / names[0]).write_bytes(b"garbage\n" * 1000)
        restart(directory, names, within)

    with monkeypatch.context() as patch:
        patch.setattr(program.rehearsal, "restart", spoiled)
        with pytest.raises(CannotStop) as fault:
            rehearsing.stop(program)
    assert (fault.value.why, fault.value.alive) == ("rehearsal_failed", True)
    counted_further(place / "out.0", 3)
    program = rehearsing.restart(*rehearsing.stop(program))
    finish(place / "out")
    assert program.wait(LIMIT) == 5
    assert is_gapless(place / "out.0") and is_gapless(place / "out.1")


def test_a_program_that_finishes_after_a_failed_rehearsal_keeps_its_code(rehearsing: Bench, place: Path) -> None:
    program = rehearsing.running("append", place / "out", 0, 0.02)
    assert program.rehearsal is not None

    def fails(directory: str, names: Sequence[str], within: float) -> None:
        raise CannotStart("tool_failed", "not today")

    program.rehearsal.restart = fails
    with pytest.raises(CannotStop, match="not today"):
        rehearsing.stop(program)
    finish(place / "out")
    assert program.wait(LIMIT) == 0
    assert is_gapless(place / "out")


def test_without_memory_for_both_nothing_is_requested(
    rehearsing: Bench, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = rehearsing.running("count", place / "out", 0, 0.02, 5)
    monkeypatch.setattr(rehearsal, "memory_room", lambda environment, used: used)
    with pytest.raises(CannotStop, match=r"may take \d+ MB of memory, and there are \d+ MB") as fault:
        rehearsing.stop(program)
    assert (fault.value.why, fault.value.alive) == ("no_rehearsal", True)
    assert program.own.begun == 0
    finish(place / "out")
    assert program.wait(LIMIT) == 5


def test_rehearsals_need_a_tried_release_and_the_plug_in(benches: Callable[..., Bench], tmp_path: Path) -> None:
    old = benches("4.1.1").driver
    old.rehearse_checkpoints()
    with pytest.raises(CannotStart, match=r"DMTCP 4\.2 or 5\.0"):
        old.version()
    bare = Dmtcp(str(benches("5.0").bin), {**os.environ, "OMFS_LIB": str(tmp_path)})
    bare.rehearse_checkpoints()
    with pytest.raises(CannotStart, match=r"omfs_children\.so") as fault:
        bare.version()
    assert fault.value.why == "no_rehearsal"


def test_nobody_is_held_whose_holder_is_gone(rehearsing: Bench, place: Path) -> None:
    program = rehearsing.running("count", place / "out", 0, 0.02, 5)
    hold = ProcessHold(program.scratch.temporary)
    hold.begin()
    gone = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, check=True)
    (Path(program.scratch.temporary) / "omfs-hold").write_bytes(gone.stdout)
    program._coordinator.ask("--checkpoint")
    until(lambda: program.wait(0) is None and program.own.begun == 1)
    counted_further(place / "out", 3)
    program.kill()


# --- what would do harm


@pytest.fixture
def opened() -> Iterator[Callable[[str], str]]:
    """What is said of a program that has opened something."""
    running: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> str:
        script = f"import os, mmap, socket, sys\n{code}\nprint(flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", script], **pipes)  # type: ignore[call-overload]
        running.append(process)
        assert process.stdout.readline() == b"\n"
        return harm([process.pid], {}, "/nowhere/tmp").partition(" of ")[0]

    yield start
    for process in running:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(LIMIT)
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("", ""),
        ("kept = socket.socketpair(), os.pipe(), open('plain', 'a'), open('/dev/null')", ""),
        ("kept = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)", ""),
        ("kept = socket.create_server(('127.0.0.1', 0))", "a socket"),
        ("kept = socket.socket(); kept.bind(('127.0.0.1', 0))", "a socket"),
        ("kept = socket.socket(socket.AF_UNIX); kept.bind('named')", "a socket"),
        ("os.mkfifo('fifo'); kept = os.open('fifo', os.O_RDWR)", "a named pipe"),
        ("kept = open('gone', 'w'); os.unlink('gone')", "a deleted file or a message queue"),
        ("kept = mmap.mmap(-1, 4096)", "shared memory"),
        ("f = open('shared', 'wb+'); f.truncate(9); kept = mmap.mmap(f.fileno(), 9); f.close()", "shared memory"),
    ],
)
def test_what_two_programs_would_share_is_refused(
    opened: Callable[[str], str], place: Path, code: str, what: str
) -> None:
    assert opened(code) == what


def test_plug_ins_of_the_user_and_system_v_objects_are_refused(tmp_path: Path) -> None:
    ours = "/usr/lib/omfs/omfs_children.so"
    (tmp_path / "sysvipc").mkdir()
    titles = "key semid perms nsems uid gid cuid cgid otime ctime\n"
    path = tmp_path / "sysvipc" / "sem"
    path.write_text(titles + "0 0 600 1 4711 0 0 0 0 0\n")
    assert harm([], {"DMTCP_PLUGIN": ours}, "/nowhere", str(tmp_path)) == ""
    assert "plug-in of your own" in harm([], {"DMTCP_PLUGIN": ours + ":/home/x.so"}, "/nowhere", str(tmp_path))
    path.write_text(titles + f"0 0 600 1 {os.geteuid()} 0 0 0 0 0\n")
    assert "System V" in harm([], {"DMTCP_PLUGIN": ours}, "/nowhere", str(tmp_path))


# --- memory


def test_the_least_of_node_cgroups_and_job_is_what_there_is(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")

    def room(environment: dict[str, str], used: int = 0) -> int:
        return memory_room(environment, used, str(proc), str(groups))

    assert room({}) == 8000 << 10
    assert room({"SLURM_MEM_PER_NODE": "4"}, 1 << 20) == 3 << 20
    assert room({"SLURM_MEM_PER_CPU": "2", "SLURM_CPUS_ON_NODE": "3"}, 1 << 20) == 5 << 20
    assert room({"SLURM_MEM_PER_NODE": "4"}, 5 << 20) == 0
    for line, names, inactive in (
        ("0::/job/step", ("memory.max", "memory.current"), "inactive_file"),
        ("4:memory:/job/step", ("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_inactive_file"),
    ):
        (proc / "self" / "cgroup").write_text(f"1:cpu:/job\n{line}\n")
        job = groups / ("memory" if ":memory:" in line else "") / "job"
        (job / "step").mkdir(parents=True)
        (job / "step" / names[0]).write_text("max\n")
        (job / names[0]).write_text("3000000\n")
        (job / names[1]).write_text("2000000\n")
        (job / "memory.stat").write_text(f"anon 5\n{inactive} 500000\n")
        assert room({}) == 1500000
