"""Drivers for DMTCP: each ends, with all that was started by it, at the end of a test. And an empty checkpoint
directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.omfs_run.store.generations import Generations
from tests.support.dmtcp_bench import REAL, STAND_INS, Bench, make


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def benches(place: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def build(version: str, fault: str = "") -> Bench:
        made.append(make(place, version, fault))
        return made[-1]

    yield build
    for bench in made:
        for program in bench.started:
            program.kill()
        assert bench.left() == []


@pytest.fixture(params=STAND_INS + (["real"] if REAL else []))
def bench(request: pytest.FixtureRequest, benches: Callable[..., Bench]) -> Bench:
    return benches(request.param)


@pytest.fixture(params=STAND_INS)
def faulty(request: pytest.FixtureRequest, benches: Callable[..., Bench]) -> Callable[[str], Bench]:
    return lambda fault: benches(request.param, fault)


def opened(path: Path) -> Generations:
    return Generations(os.open(path, os.O_RDONLY | os.O_DIRECTORY), str(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir(mode=0o700)
    return tmp_path / "checkpoints"


@pytest.fixture
def store(path: Path) -> Generations:
    return opened(path)
