"""Programs that checkpoint themselves under a real `mpirun` (Open MPI): nobody is asked before all ranks are there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.drivers.application import Application
from omfs_daemon.omfs_run.drivers.driver import CannotStop, Program
from tests.support.waiting import LIMIT, wait_until

RANK = """
import os, pathlib, signal, time
place, rank = pathlib.Path(os.environ["PLACE"]), os.environ["OMPI_COMM_WORLD_RANK"]
def keep(*_):
    (place / ("asked." + rank)).touch()
    if len(list(place.glob("asked.*"))) == 2:
        open(os.environ["OMFS_MARK"], "w").close()
(place / ("up." + rank)).touch()
while not (place / ("go." + rank)).exists():
    time.sleep(0.01)
signal.signal(signal.SIGUSR1, keep)
while True:
    time.sleep(0.01)
"""
STARTER = ["mpirun", "--oversubscribe", "-np", "2"]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**os.environ, **allowed, "PLACE": str(tmp_path)}
    command = [*STARTER, sys.executable, "-c", RANK]
    started = Application(signal.SIGUSR1, command, environment, 0).start(command, str(tmp_path))
    yield started
    started.kill()
    assert started.wait(0) is not None


def test_ranks_are_asked_when_each_has_its_handler(program: Program, tmp_path: Path) -> None:
    wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, "the ranks")
    assert not program.ready()
    (tmp_path / "go.0").touch()
    with pytest.raises(AssertionError, match="waited"):
        wait_until(program.ready, "it to be ready with one rank of two", limit=1)
    with pytest.raises(CannotStop, match="does not catch SIGUSR1"):
        program.checkpoint("", LIMIT)
    (tmp_path / "go.1").touch()
    wait_until(program.ready, "the handlers")
    program.checkpoint("", LIMIT)
    assert program.wait(0) is not None
    assert len(list(tmp_path.glob("asked.*"))) == 2


def test_a_signal_that_comes_before_the_ranks_are_there_is_not_sent(program: Program, tmp_path: Path) -> None:
    with pytest.raises(CannotStop, match="does not catch SIGUSR1"):
        program.checkpoint("", 1)
    for rank in range(2):
        (tmp_path / f"go.{rank}").touch()
    wait_until(program.ready, "the handlers")
    assert program.wait(0) is None
