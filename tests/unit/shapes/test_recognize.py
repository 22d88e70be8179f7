"""Programs of the shapes themselves are recognized by what /proc shows of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.shapes.shape_list import PROGRAMS, SHAPES
from omfs_daemon.cli.main import app
from omfs_daemon.cli.program_fit import by_method
from omfs_daemon.shapes.recognize import Recognized, recognized_shapes
from omfs_daemon.shapes.shape_table import ShapeOutcome, shape_table
from tests.support.waiting import LIMIT, wait_until

SEEN = (
    "O_TMPFILE", "memfd", "timerfd", "inotify", "pseudoterminal of its own", "path open (O_PATH)", "eventfd", "epoll",
    "signalfd", "unlinked file", "FIFO", "mapping of a file", "mapping in /dev/shm", "shared memory without a file",
    "file locked with flock", "file locked with lockf", "TCP socket that listens", "UDP socket", "duplicated pipe",
    "duplicated socket", "duplicated file", "directory open", "blocked signal that is pending",
    "timer of timer_create(2)", "threads, in Python", "locked memory (mlock)", "socket pair to a child",
    "pipes to a child", "ended child, waited for later", "file written and read",
)  # fmt: skip


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[[str], int]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(title: str) -> int:
        shape = next(shape for shape in SHAPES if shape.title == title)
        command = [sys.executable, str(PROGRAMS / shape.source), shape.name]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMFS", "STAND_IN"))}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment))
        wait_until((tmp_path / "out").exists, title)
        return started[-1].pid

    yield start
    (tmp_path / "finish").touch()
    for process in started:
        process.wait(LIMIT)


@pytest.mark.parametrize("title", SEEN)
def test_a_shape_is_seen_in_proc(running: Callable[[str], int], title: str) -> None:
    pid = running(title)
    wait_until(lambda: title in {one.shape for one in recognized_shapes(pid)}, title)
    known = shape_table().shapes
    assert all(one.shape in known for one in recognized_shapes(pid))


def test_the_worst_shape_decides() -> None:
    table = shape_table()
    found = [Recognized("epoll", "a (pid 1)"), Recognized("memfd", "a (pid 1)")]
    worst = by_method(found, table)
    assert (worst["dmtcp"][0].verdict, worst["dmtcp"][1]) == (ShapeOutcome.REFUSED, "memfd")
    assert {verdict.verdict for verdict, _ in by_method([], table).values()} == {ShapeOutcome.SURVIVES}


def test_omfs_methods_fit_looks_a_program_up(running: Callable[[str], int]) -> None:
    pid = running("memfd")
    wait_until(lambda: any(one.shape == "memfd" for one in recognized_shapes(pid)), "memfd")
    shown = CliRunner().invoke(app, ["methods", "fit", "--pid", str(pid)])
    assert shown.exit_code == 0, shown.output
    assert f"(pid {pid})" in shown.output and "refused: unfit: memfd open (memfd)" in shown.output
    found = json.loads(CliRunner().invoke(app, ["methods", "fit", "--pid", str(pid), "--json"]).stdout)
    assert found["methods"]["dmtcp"]["shape"] == "memfd"
    assert "memfd" in [one["shape"] for one in found["shapes"]]


def test_no_process_is_one_line() -> None:
    shown = CliRunner().invoke(app, ["methods", "fit", "--pid", "0"])
    assert (shown.exit_code, shown.output) == (2, "omfs: --pid 0: there is no such process on this node\n")
