"""Runs that start more than once: a checkpoint that does not restart, a program killed through its coordinator."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.omfs_run.drivers.dmtcp.program import DmtcpProgram
from omfs_daemon.omfs_run.run import Run, RunSetup
from omfs_daemon.omfs_run.signals import Inbox
from omfs_daemon.omfs_run.store.computed_time import ComputedTime
from omfs_daemon.omfs_run.store.generations import Generations
from omfs_daemon.omfs_run.store.manifest import read_manifest, write_manifest
from omfs_daemon.protocol.exit_codes import STOPPED
from tests.support.dmtcp_bench import PYTHON, Bench, counted_further, finish, send_to_coordinator, until
from tests.support.dmtcp_stand_in import PROGRAMS
from tests.support.waiting import LIMIT


class Reports:
    """In the place of JobExit: the job can always be held."""

    fault: str | None = ""

    def __init__(self) -> None:
        self.states: list[tuple[str, dict[str, Any]]] = []

    def report(self, state: str, **fields: Any) -> None:
        self.states.append((state, fields))

    def leave(self, code: int) -> int:
        return code


class OneRun:
    """One run of the job, in a thread; all of its starts share one scratch directory."""

    def __init__(self, bench: Bench, store: Path, out: Path) -> None:
        self.inbox, self.reports, self.codes = Inbox(), Reports(), list[int]()
        self._pause = threading.Event()
        self.inbox.wait = self._wait  # type: ignore[method-assign]
        self.store = Generations(os.open(store, os.O_RDONLY | os.O_DIRECTORY), str(store))
        command = [PYTHON, str(PROGRAMS / "count.py"), str(out), "0", "0.02", "5"]
        setup = RunSetup(command, bench.driver, str(bench.new("scratch")), LIMIT, False, False, {})
        descriptor = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
        self.run = Run(setup, self.reports, self.inbox, self.store, ComputedTime(descriptor))  # type: ignore[arg-type]
        self._thread = threading.Thread(target=lambda: self.codes.append(self.run.go()), daemon=True)
        self._thread.start()

    def _wait(self, seconds: float) -> None:
        self._pause.wait(0.01)  # requests come from another thread, without a signal

    @property
    def program(self) -> DmtcpProgram:
        assert isinstance(self.run._program, DmtcpProgram)
        return self.run._program

    def reported(self, state: str) -> int:
        return sum(each == state for each, _ in self.reports.states)

    def code(self) -> int:
        self._thread.join(LIMIT)
        return self.codes[0]

    def is_ready(self, times: int = 1) -> None:
        until(lambda: self.reported("ready") >= times or self.codes)
        assert not self.codes, self.reports.states

    def checkpoint(self, out: Path) -> None:
        self.is_ready()
        counted_further(out, 2)
        self.inbox.record(signal.SIGUSR1)
        assert self.code() == STOPPED


@pytest.fixture
def begin(bench: Bench, place: Path) -> Iterator[Callable[[], OneRun]]:
    (place / "checkpoints").mkdir(mode=0o700)
    runs: list[OneRun] = []

    def new() -> OneRun:
        runs.append(OneRun(bench, place / "checkpoints", place / "out"))
        return runs[-1]

    yield new
    for run in runs:
        if isinstance(run.run._program, DmtcpProgram):
            run.run._program.kill()


def test_the_generation_before_is_used_in_the_same_run(begin: Callable[[], OneRun], place: Path) -> None:
    for _ in range(2):
        run = begin()
        run.checkpoint(place / "out")
    # An image that is as its manifest says, and cannot be restarted.
    newest = run.store.candidates()[0]
    path = place / "checkpoints" / newest
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    manifest = read_manifest(descriptor, newest)
    (path / next(name for name in manifest.image.files if name.endswith(".dmtcp"))).write_bytes(b"garbage\n" * 1000)
    write_manifest(descriptor, newest, manifest.method, manifest.image, manifest.computed, {})
    run = begin()
    run.is_ready()
    assert dict(run.reports.states)["ready"]["from"] == 1
    finish(place / "out")
    assert run.code() == 5


@pytest.mark.parametrize("harm", ["-k", "-kc", "-q", "coordinator"])
def test_a_program_that_was_killed_goes_on_in_the_same_run(
    begin: Callable[[], OneRun], bench: Bench, place: Path, harm: str
) -> None:
    # An open coordinator: the closed one refuses a command that does not wait for an answer (-q), even its owner's.
    bench.driver._environment["OMFS_LIB"] = str(place)
    begin().checkpoint(place / "out")
    run = begin()
    run.is_ready()
    first = run.program
    if harm == "coordinator":
        os.kill(first.own.pid, signal.SIGKILL)
    else:
        send_to_coordinator(bench, first, harm)
    run.is_ready(2)
    assert run.program is not first
    counted_further(place / "out", 2)
    finish(place / "out")
    assert run.code() == 5
