"""Every contract test runs against the fake and, marked ``slurm``, against one private real Slurm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.demo.local_slurm import LocalSlurm
from tests.contract.worlds import SHAPE, FakeWorld, RealWorld, World


@pytest.fixture(scope="session")
def contract_slurm() -> Iterator[LocalSlurm]:
    """One cluster for all tests, in a directory that jobs' owners can enter."""
    with tempfile.TemporaryDirectory(prefix="omfs-contract-") as directory:
        Path(directory).chmod(0o755)
        with LocalSlurm(Path(directory), SHAPE) as slurm:
            yield slurm


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.slurm)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty cluster."""
    if request.param == "fake":
        yield FakeWorld()
        return
    real = RealWorld(request.getfixturevalue("contract_slurm"))
    yield real
    real.clear()
