"""Parts of the CRIU driver that need no CRIU: its log, image files, processes, and standard streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.criu import criu_processes, dump_images
from omfs_daemon.omfs_run.drivers.criu.criu_processes import CriuProcess
from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[3]
RLIMIT = "Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"


@pytest.mark.parametrize(
    ("log", "output", "why", "message"),
    [
        (
            RLIMIT
            + "Error (criu/bfd.c:132): bfd: flush: No space left on device\nError (criu/cr-dump.c:1): Dumping FAILED.",
            "",
            "no_space",
            "bfd: flush: No space left on device",
        ),
        (
            "Error (criu/page-xfer.c:1): Unable to spill data: Disk quota exceeded",
            "",
            "no_space",
            "Unable to spill data: Disk quota exceeded",
        ),
        (
            "Warn  (criu/kerndat.c:1200): $XDG\nError (criu/cr-restore.c:1237): Can't fork for 10011: File exists\n"
            "Error (criu/cr-restore.c:2331): Restoring FAILED.",
            "",
            "pid_taken",
            "Can't fork for 10011: File exists",
        ),
        (
            "pie: 12: Error (criu/pie/restorer.c:2): Unable to create a thread: -17",
            "",
            "pid_taken",
            "Unable to create a thread: -17",
        ),
        (
            "Error (criu/sk-inet.c:991): inet: Can't bind inet socket (id 13): Address already in use",
            "",
            "address_taken",
            "inet: Can't bind inet socket (id 13): Address already in use",
        ),
        ("Error (criu/image.c:5): Can't open a: File exists", "", "tool_failed", "Can't open a: File exists"),
        ("Error (criu/image.c:5): a.img: Read-only file system", "", "not_writable", "a.img: Read-only file system"),
        ("", "first\nomfs-criu: there is no process 4\n", "tool_failed", "omfs-criu: there is no process 4"),
        (RLIMIT, "", "tool_failed", "no message"),
    ],
)
def test_the_cause_is_the_first_error(log: str, output: str, why: str, message: str) -> None:
    assert dump_images.find_failure(log, output) == (why, message)


TASKS = {10: [10, 12], 11: [11]}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in [*dump_images.needed_images(TASKS), "pages-1.img"]:
        (tmp_path / name).write_bytes(b"1234")
    return tmp_path


def test_a_complete_set(images: Path) -> None:
    files = dump_images.verify(str(images), TASKS)
    assert files == sorted(path.name for path in images.iterdir())
    assert {"core-12.img", "mm-10.img", "core-11.img", "pages-1.img"} <= set(files)
    assert dump_images.to_disk(str(images), files) == 4 * len(files)


@pytest.mark.parametrize("name", ["inventory.img", "core-12.img", "mm-11.img", "pstree.img"])
def test_a_missing_or_empty_file_is_reported(images: Path, name: str) -> None:
    (images / name).write_bytes(b"")
    with pytest.raises(dump_images.IncompleteDump, match=f"{name} is empty"):
        dump_images.verify(str(images), TASKS)
    (images / name).unlink()
    with pytest.raises(dump_images.IncompleteDump, match=f"{name} is missing"):
        dump_images.verify(str(images), TASKS)


def test_a_link_is_no_image(images: Path) -> None:
    (images / "extra.img").symlink_to("/etc/passwd")
    with pytest.raises(dump_images.IncompleteDump, match=r"extra\.img is not a file"):
        dump_images.verify(str(images), TASKS)


def test_a_name_cannot_pretend_to_be_a_state(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    rest = " ".join(["S", "3", "7", "5"] + ["0"] * 15 + ["999"] + ["0"] * 20)
    (tmp_path / "7/stat").write_text(f"7 (a) R 1 (b) {rest}\n")
    assert criu_processes.process_now(7, str(tmp_path)) == CriuProcess(7, 3, 5, "S", 999)
    assert criu_processes.process_now(8, str(tmp_path)) is None


def test_only_a_timerfd_that_repeats_is_refused(tmp_path: Path) -> None:
    (tmp_path / "7/fdinfo").mkdir(parents=True)
    (tmp_path / "7/fdinfo/3").write_text("pos:\t0\nclockid: 1\nit_value: (0, 49406829)\nit_interval: (0, 0)\n")
    assert not criu_processes.has_repeating_timerfd(7, str(tmp_path))
    (tmp_path / "7/fdinfo/4").write_text("pos:\t0\nclockid: 1\nit_value: (0, 0)\nit_interval: (0, 20000000)\n")
    assert criu_processes.has_repeating_timerfd(7, str(tmp_path))
    assert not criu_processes.has_repeating_timerfd(8, str(tmp_path))


@pytest.mark.parametrize(("code", "found"), [(200, 200), (128, 128), (127, 0), (0, 0), (-9, 0)])
def test_exit_codes_that_criu_cuts_off(code: int, found: int) -> None:
    text = f"import os; os.kill(os.getpid(), {-code})" if code < 0 else f"raise SystemExit({code})"
    process = subprocess.Popen([sys.executable, "-c", text])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    now = criu_processes.process_now(process.pid)
    assert now is not None
    assert criu_processes.truncated_exit_code(now) == found
    process.wait(LIMIT)


def test_a_tree_has_parents_first_and_no_others() -> None:
    parents = {2: 1, 5: 2, 3: 5, 4: 2, 9: 1}
    processes = {pid: CriuProcess(pid, parent, 1, "S", 0) for pid, parent in parents.items()}
    assert [one.pid for one in criu_processes.tree_of(2, processes)] == [2, 5, 4, 3]
    assert criu_processes.tree_of(7, processes) == []


@pytest.fixture
def family() -> Iterator[list[CriuProcess]]:
    """A shell and its child, in their own session."""
    shell = subprocess.Popen(["sh", "-c", "sleep 3600 & wait"], start_new_session=True)

    def both() -> list[CriuProcess]:
        found = criu_processes.tree_of(shell.pid, criu_processes.all_processes())
        return found if len(found) == 2 else []

    try:
        yield wait_until(both, "the child")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_stopped_processes_differ_from_those_that_ran(family: list[CriuProcess]) -> None:
    assert not criu_processes.are_stopped(family)
    for one in family:
        criu_processes.send(one, signal.SIGSTOP)
    wait_until(lambda: criu_processes.are_stopped(family), "both to stop")
    criu_processes.send(family[1], signal.SIGCONT)
    wait_until(lambda: not criu_processes.are_stopped(family), "one to continue")
    criu_processes.send(family[1], signal.SIGSTOP)
    assert criu_processes.continue_processes(family, 10)
    assert {one.state for one in map(criu_processes.same, family) if one} <= {"R", "S"}


def test_who_ran_for_a_moment_is_found_out(family: list[CriuProcess]) -> None:
    for one in family:
        criu_processes.send(one, signal.SIGSTOP)
    assert criu_processes.await_stopped(family, LIMIT)
    marks = criu_processes.switches(family)
    assert set(marks) == {one.pid for one in family} and all(marks.values())
    assert criu_processes.switches(family) == marks
    criu_processes.send(family[1], signal.SIGCONT)
    wait_until(lambda: not criu_processes.are_stopped(family), "one to continue")
    criu_processes.send(family[1], signal.SIGSTOP)
    assert criu_processes.await_stopped(family, LIMIT)
    assert criu_processes.switches(family) != marks
    criu_processes.send(family[1], signal.SIGCONT)
    assert not criu_processes.await_stopped(family, 0.1)


def test_a_number_used_anew_is_another_process(family: list[CriuProcess]) -> None:
    earlier = family[1]._replace(started=family[1].started - 1)
    assert criu_processes.same(family[1]) and criu_processes.same(earlier) is None
    criu_processes.send(earlier, signal.SIGKILL)
    assert criu_processes.is_alive(criu_processes.same(family[1]))


def test_all_of_a_session_is_ended_and_not_that_of_another_leader(family: list[CriuProcess]) -> None:
    shell, child = family
    criu_processes.send(shell, signal.SIGKILL)
    wait_until(lambda: not criu_processes.is_alive(criu_processes.same(shell)), "the shell to end")
    assert criu_processes.end_tree([], shell._replace(started=shell.started - 1), 5)
    assert criu_processes.is_alive(criu_processes.same(child)), "a session of the same number, led by another"
    assert criu_processes.end_tree([], shell, 5)
    assert not criu_processes.is_alive(criu_processes.same(child))


STREAMS = """
import os
from omfs_daemon.omfs_run.drivers.criu.criu_driver import _require_streams
from omfs_daemon.omfs_run.drivers.driver import CannotStart
try:
    _require_streams()
except CannotStart as error:
    print(error.why, error)
"""


def test_output_into_a_pipe_is_refused_at_the_start() -> None:
    command = [sys.executable, "-c", STREAMS]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=True, cwd=ROOT
    )
    assert done.stdout == ("standard_stream standard output is neither a file nor /dev/null: criu cannot restore it\n")


def test_output_files_are_only_appended_to(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        command = [sys.executable, "-c", STREAMS]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=LIMIT, check=True, cwd=ROOT)
        out.write("kept")
        out.flush()
        (tmp_path / "out").write_text("others' line\n")
        out.write("ours")
    assert (tmp_path / "out").read_text() == "others' line\nours"
