"""``omfs`` as it is installed: a process of its own, with its output and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

OMFS = Path(sys.executable).parent / "omfs"


def omfs(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMFS_CONFIG": str(daemon.config)}
    return subprocess.run([OMFS, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT)


def test_status_and_why_and_what_goes_wrong(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("bio", method="requeue")
    daemon.wait_running(job)
    wait_until(lambda: daemon.ask("status")["cluster"]["cpus_used"] == 4, "omfsd to see the job")

    status = omfs(daemon, "status")
    assert (status.returncode, status.stderr) == (0, "")
    assert "bio" in status.stdout and "physics" in status.stdout and "\x1b" not in status.stdout
    view = json.loads(omfs(daemon, "status", "--json").stdout)
    assert {row["account"]: (row["entitled"], row["used"]) for row in view["accounts"]} == {
        "bio": (8, 4),
        "physics": (8, 0),
    }

    why = omfs(daemon, "why", str(job))
    assert (why.returncode, why.stderr) == (0, "")
    assert str(job) in why.stdout and "RUNNING" in why.stdout

    unknown = omfs(daemon, "why", "999999")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("omfs: ") and "999999" in unknown.stderr and unknown.stderr.count("\n") == 1

    assert daemon.stop() == 0
    silent = omfs(daemon, "status")
    assert (silent.returncode, silent.stdout) == (3, "")
    assert silent.stderr.startswith("omfs: ") and silent.stderr.count("\n") == 1
