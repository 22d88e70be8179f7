"""People and crashes at random on a real Slurm with slurmdbd: nothing is lost, and nothing waits without a reason."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.amounts import is_soak
from tests.support.daemons import ROOT, Daemon, with_clock_of
from tests.support.marked_jobs import DAEMON, MAX_AGE, OPERATOR, PLUGIN, MarkedCluster, uid_of
from tests.support.real_stress import (
    OWNERS,
    Crash,
    Stress,
    drain_node,
    kill_omfsd,
    kill_slurmctld,
    kill_slurmd,
    kill_slurmdbd,
    step_clock,
)
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slurm

SECONDS = 3600.0 if is_soak() else 45.0
CRASHES: tuple[Crash, ...] = (kill_omfsd, kill_slurmctld)
if is_soak():
    CRASHES += (kill_slurmd, kill_slurmdbd, drain_node, step_clock)
RESULTS = ROOT / "build" / "bench" / "soak.json"
EVERY = 12.0
"""Seconds between two of them."""

SEED = random.SystemRandom().randrange(10**6) if is_soak() else 2026


@pytest.fixture
def on() -> Iterator[MarkedCluster]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-stress-"))
    directory.chmod(0o755)
    settings = {
        "heartbeat": str(directory / "heartbeat"),
        "max_age": MAX_AGE,
        "daemon_uid": uid_of(DAEMON),
        "operator_uids": uid_of(OPERATOR),
        "class_1": "partition=urgent;urgent=yes",
        "class_2": "methods=requeue,suspend,dmtcp",
    }
    # Slurm still knows at the end of an hour what ended in its first minute.
    shape = Shape(options={"SlurmUser": DAEMON, "KillWait": "2", "MinJobAge": "7200"})
    accounting = Accounting([*OWNERS], [*OWNERS.values()], [OPERATOR])
    try:
        with LocalSlurm(
            directory, shape, gate=SubmitGate(PLUGIN, settings), accounting=accounting, limit=LIMIT
        ) as slurm:
            yield MarkedCluster(slurm)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_people_and_crashes_leave_nothing_behind(on: MarkedCluster) -> None:
    directory = on.slurm.directory / "omfsd"
    directory.mkdir()
    daemon = Daemon(on.slurm, directory)
    config = daemon.config.read_text()
    daemon.config.write_text(config.replace('["requeue", "suspend"]', '["requeue", "suspend", "dmtcp"]'))
    stress = Stress(on, daemon, SEED)
    try:
        daemon.start(with_clock_of(stress.clock))
        stress.run(SECONDS, [stress.random.choice(CRASHES) for _ in range(int(SECONDS / EVERY) - 2)] + list(CRASHES))
        assert stress.faults == [], f"seed {SEED}"
        stress.settle()
        assert stress.faults == [], f"seed {SEED}"
    finally:
        daemon.kill()
    assert all(stress.counts[crash.__name__] for crash in CRASHES), stress.counts
    if is_soak():
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        found = {"seconds": SECONDS, "seed": SEED, "jobs": len(stress.submitted), "acts": dict(stress.counts)}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
