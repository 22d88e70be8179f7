"""Kernels are compiled once for all workers of a test run."""

from __future__ import annotations

import fcntl

import pytest

from omfs_daemon.simulate.policies.policy_table import POLICIES
from omfs_daemon.simulate.run_cases import compile_for


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first worker compiles into numba's cache, the others wait and load."""
    shared = tmp_path_factory.getbasetemp().parent
    with (shared / "compiling.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        compile_for(POLICIES)
