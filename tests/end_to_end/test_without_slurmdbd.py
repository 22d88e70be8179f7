"""slurmdbd is down on a real Slurm: omfsd works on after a restart, and so does its failsafe, without configuration,
socket, and heartbeat."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.daemons import Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """On two nodes, with a slurmdbd that knows both accounts."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-dbd-"))
    directory.chmod(0o755)
    (directory / "omfs").mkdir()
    accounting = Accounting(accounts=["bio", "physics"], users=["root"])
    try:
        with LocalSlurm(directory / "slurm", Shape(2), accounting=accounting, limit=LIMIT) as slurm:
            installation = Daemon(slurm, directory / "omfs")
            try:
                yield installation
            finally:
                installation.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def failsafe(daemon: Daemon) -> tuple[int, list[dict[str, Any]]]:
    """Its exit code, and its log."""
    done = daemon.omfs("failsafe", check=False)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines()]


def test_the_daemon_and_its_failsafe_work(daemon: Daemon) -> None:
    daemon.start()
    bio = [daemon.submit("bio", method="suspend") for _ in range(2)]
    daemon.wait_running(*bio)
    first, second = daemon.submit("physics"), daemon.submit("physics")
    daemon.wait_running(first)
    wait_until(lambda: str(second) in daemon.held(), "the second to be held")
    daemon.kill()
    daemon.slurm.kill_slurmdbd()

    daemon.start()
    assert '"event": "accounts_not_confirmed"' in daemon.log.read_text()
    status = daemon.ask("status")
    assert (status["last_error"], status["held"], len(status["preempted"])) == (None, 1, 1)
    daemon.kill()

    shutil.rmtree(daemon.directory / "run")
    daemon.config.write_text(daemon.config.read_text() + "[[class")
    code, log = failsafe(daemon)
    assert log[0]["event"] == "configuration_wrong" and "omfs.toml" in log[0]["error"]
    if code == 1 and log[-1]["event"] == "failsafe_waits":
        assert log[-1]["still_held"] == [str(second)]
    daemon.let_end(first, second)  # either may get the CPUs of the suspended one
    wait_until(lambda: failsafe(daemon)[0] == 0, "the failsafe to be done, once its grace time is over")
    assert not daemon.held()
    assert not [job for job in daemon.gateway.jobs() if job.state is JobState.SUSPENDED]
    daemon.let_end(*bio)
    daemon.wait_rest()
    assert daemon.completed([*bio, first, second])
