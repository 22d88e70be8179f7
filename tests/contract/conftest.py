"""Every contract test runs against the fake, by itself and through the PySlurm adapter with a stand-in for PySlurm,
and, marked ``slurm``, against one private real Slurm.

Where ``OMFS_PYSLURM_PYTHON`` names an interpreter that has a PySlurm of this Slurm's release, also through that.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.slurm.pyslurm.pyslurm_process import PySlurmProcess
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.clusters import SHAPE, FakeWorld, RealWorld, World
from tests.support.pyslurm_stand_in.server import StandInServer
from tests.support.waiting import LIMIT

PYTHON = os.environ.get("OMFS_PYSLURM_PYTHON", "")
REAL = ["real", *(["pyslurm over real"] if PYTHON else [])]
WORLDS = ["fake", "pyslurm over fake", *(pytest.param(name, marks=pytest.mark.slurm) for name in REAL)]


@pytest.fixture(scope="session")
def contract_slurm() -> Iterator[LocalSlurm]:
    """One cluster for all tests, in a directory that jobs' owners can enter."""
    with tempfile.TemporaryDirectory(prefix="omfs-contract-") as directory:
        Path(directory).chmod(0o755)
        with LocalSlurm(Path(directory), SHAPE, limit=LIMIT) as slurm:
            yield slurm


@pytest.fixture(scope="session")
def stand_in() -> Iterator[tuple[PySlurmProcess, StandInServer]]:
    """One process with the stand-in for all tests; what its fake is they say."""
    with tempfile.TemporaryDirectory(prefix="omfs-stand-in-") as directory:
        server = StandInServer(Path(directory))
        process = PySlurmProcess(None, LIMIT, variables=server.variables)
        yield process, server
        process.close()
        server.close()


@pytest.fixture(scope="session")
def real_pyslurm(contract_slurm: LocalSlurm) -> Iterator[PySlurmProcess]:
    process = PySlurmProcess(contract_slurm.conf, LIMIT, PYTHON)
    yield process
    process.close()


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty cluster."""
    if "fake" in request.param:
        fake = FakeWorld()
        if "pyslurm" in request.param:
            fake.through_pyslurm(*request.getfixturevalue("stand_in"))
        yield fake
        return
    real = RealWorld(request.getfixturevalue("contract_slurm"))
    if "pyslurm" in request.param:
        real.through_pyslurm(request.getfixturevalue("real_pyslurm"))
    yield real
    real.clear()
