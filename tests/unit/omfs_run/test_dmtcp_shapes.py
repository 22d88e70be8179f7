"""Without the look before a checkpoint, DMTCP loses what the shapes that are refused have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.shapes.shape_list import PROGRAMS as SHAPE_PROGRAMS
from benchmarks.shapes.shape_list import SHAPES
from omfs_daemon.omfs_run.drivers.dmtcp import fitness
from tests.support.dmtcp_bench import PYTHON, Bench, counted_further, until
from tests.support.dmtcp_stand_in import PROGRAMS
from tests.support.waiting import LIMIT

LOST = ("O_TMPFILE", "memfd", "timerfd", "inotify", "pseudoterminal of its own", "path open (O_PATH)")
LOST += ("file locked with flock", "file locked with lockf", "children inherited (subreaper)")


@pytest.mark.parametrize("title", [*LOST, "eventfd"])
def test_unprotected_a_shape_is_lost(
    benches: Callable[..., Bench], place: Path, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    monkeypatch.setattr(fitness, "unfit", lambda *_: "")
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    bench = benches("4.2.0")
    shape = next(shape for shape in SHAPES if shape.title == title)
    program = bench.command(PYTHON, SHAPE_PROGRAMS / shape.source, shape.name)
    until(program.ready)
    counted_further(place / "out", 2)
    generation, image = bench.stop(program)
    (place / "finish").touch()
    assert (bench.restart(generation, image).wait(LIMIT) == shape.code) == (title not in LOST)
