"""What all tests share: how much is tried, who runs on which worker, and real Slurm clusters.

Tests that are marked ``slurm`` fail, never skip, if no Slurm can be brought up.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support import cgroups, traces
from tests.support.amounts import EXAMPLES, SOAK_EXAMPLES, SOAK_TOTAL, SOAK_VARIABLE, is_soak
from tests.support.waiting import LIMIT, wait_until

SHAPE = Shape(
    gres={"n1": "ve:2", "n2": "gpu:a100:2,gpu:v100:1"},
    features={"n1": "fast,ve", "n2": "fast"},
    partitions=("PartitionName=whole Nodes=n3,n4 OverSubscribe=EXCLUSIVE",),
    options={"KillWait": "2", "Licenses": "matlab:1"},
)

ONE_WORKER = {
    "tests/clients/": "the cluster of clients",
    "tests/contract/": "the contract's cluster",
    "tests/end_to_end/test_attacks.py": "the cluster that is attacked",
    "tests/end_to_end/test_preempt_by_checkpoint.py": "a cluster like the session's",
    "tests/end_to_end/test_preempt_by_swap_out.py": "the cluster with vector engines",
    "tests/end_to_end/test_wakeup.py": "the cluster that wakes the daemon up",
    "tests/integration/test_epilog.py": "the cluster with an epilog",
    "tests/integration/test_hostile_users.py": "the cluster of hostile users",
    "tests/integration/test_job_submit.py": "the cluster with a submit gate",
    "tests/integration/test_job_submit_marks.py": "the cluster with a user for omfsd",
    "tests/integration/test_spank.py": "the cluster with the SPANK plug-in",
}
"""The tests marked ``slurm`` of one cluster run on one worker, one after the other, so that it is brought up once. Not
in this table: the session's cluster, which tests name as a fixture, and tests that bring up one each."""

COMPILED = (
    "tests/simulate/",
    "tests/reports/",
    "tests/unit/cli/test_cli_simulate.py",
    "tests/unit/cli/test_cli_sweep.py",
)
"""Tests that run compiled kernels: they are compiled once, by the first worker. Not for ``make check``, which may come
right after a change that has all of them compiled anew."""

SYSTEM = (
    "tests/unit/omfs_node/test_hostile_nodes.py",
    "tests/unit/omfs_node/test_job_processes.py",
    "tests/unit/omfs_node/test_node_request.py",
    "tests/unit/omfs_run/test_checkpoint_directory.py",
    "tests/unit/omfs_run/test_checkpoint_store.py",
    "tests/unit/omfs_run/test_dmtcp_driver.py",
    "tests/unit/omfs_run/test_zipapps.py",
)
"""Tests outside of tests/integration that need root, or start so many programs that they are not for ``make check``."""


# -- how much ---------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help=f"full matrices and {SOAK_TOTAL:,} random examples instead of samples"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("soak"):
        os.environ[SOAK_VARIABLE] = "1"
    settings.register_profile(
        "sample",
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,  # a busy machine is no error
        suppress_health_check=list(HealthCheck),
    )
    settings.register_profile(
        "soak", settings.get_profile("sample"), max_examples=SOAK_EXAMPLES, derandomize=False, print_blob=True
    )
    settings.load_profile("soak" if is_soak() else "sample")


# -- which ------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Plain users have no recorded traces, and not every machine has cgroups: pytest counts such tests as deselected.
    if not traces.are_there() and not traces.are_required():  # in CI they run, and fail
        _leave_out(config, items, "traces")
    if any(item.get_closest_marker("cgroups") for item in items) and not cgroups.can_be_made():
        _leave_out(config, items, "cgroups")
    for item in items:
        if item.get_closest_marker("slurm"):
            group = _cluster(item)
            if group:
                item.add_marker(pytest.mark.xdist_group(group))
        if item.nodeid.startswith(COMPILED):
            item.add_marker("kernels")
            item.fixturenames.insert(0, "compiled")  # type: ignore[attr-defined]
        if item.nodeid.startswith(SYSTEM):
            item.add_marker("system")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not traces.are_there() and not traces.are_required():
        terminalreporter.write_line(traces.WITHOUT)
    if not cgroups.can_be_made():
        terminalreporter.write_line(cgroups.WITHOUT)


def _leave_out(config: pytest.Config, items: list[pytest.Item], mark: str) -> None:
    left_out = [item for item in items if item.get_closest_marker(mark)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(mark)]


def _cluster(item: pytest.Item) -> str:
    default = "the session's cluster" if "_session_slurm" in item.fixturenames else ""  # type: ignore[attr-defined]
    return next((group for path, group in ONE_WORKER.items() if item.nodeid.startswith(path)), default)


# -- compiled kernels -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def compiled() -> None:
    """Compile all kernels once: the first worker does, the others wait for the cache's lock and load."""
    from omfs_daemon.simulate.policies.policy_table import POLICIES
    from omfs_daemon.simulate.run_cases import compile_for

    compile_for(POLICIES)


# -- the log ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command that ran in this process has sent the log to its own stderr, which is closed by now."""
    yield
    structlog.reset_defaults()


# -- real Slurm -------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(_session_slurm: LocalSlurm) -> Iterator[LocalSlurm]:
    """A real cluster of four nodes (``SHAPE``), shared by the session; no job of a test outlives it."""
    yield _session_slurm
    clear(_session_slurm)


@pytest.fixture
def own_slurm() -> Iterator[Callable[..., LocalSlurm]]:
    """Make clusters that a test may break: takes what LocalSlurm takes after the directory, starts and ends them."""
    started: list[LocalSlurm] = []

    def make(shape: Shape | None = None, **options: object) -> LocalSlurm:
        cluster = LocalSlurm(_directory(), shape, **{"limit": LIMIT, **options})  # type: ignore[arg-type]
        started.append(cluster)
        cluster.start()
        return cluster

    try:
        yield make
    finally:
        for cluster in started:
            cluster.stop()
            shutil.rmtree(cluster.directory, ignore_errors=True)


@pytest.fixture(scope="session")
def _session_slurm() -> Iterator[LocalSlurm]:
    directory = _directory()
    try:
        with LocalSlurm(directory, SHAPE, limit=LIMIT) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def clear(cluster: LocalSlurm) -> None:
    """Cancel all jobs and wait until they are gone."""
    command = cluster.command

    def gone() -> bool:
        listed = command("squeue", "--noheader", "--format=%A").stdout.split()
        if listed:
            command("scancel", "--signal=KILL", *listed, check=False)  # at once, without KillWait
            command("scancel", *listed, check=False)
        return not listed

    wait_until(gone, "all jobs to end")


def _directory() -> Path:
    # Not pytest's tmp_path: other users submit jobs too and must be able to enter it.
    return Path(tempfile.mkdtemp(prefix="omfs-slurm-"))
