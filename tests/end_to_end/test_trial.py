"""A new configuration is tried beside the running daemon, which does not notice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.daemons import OMFSD, ROOT, Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm


def files_of(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_new_configuration_is_tried_beside_the_running_daemon(daemon: Daemon) -> None:
    daemon.start()
    running = [daemon.submit("bio", method="requeue") for _ in range(4)]
    daemon.wait_running(*running)
    new = daemon.directory / "new.toml"
    new.write_text(daemon.config.read_text().replace("percent = 50", "percent = 25"))
    before = files_of(daemon.directory / "state")

    def tried(path: Path) -> subprocess.CompletedProcess[str]:
        program = ("-c", str(path), "--once", "--dry-run", "--log-format", "console")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = daemon.program.start(OMFSD, *program, cwd=ROOT, **pipes)
        printed, _ = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(program, process.returncode, printed, "")

    done = tried(new)
    assert done.returncode == 0, done.stdout
    assert "dry run" in done.stdout
    assert files_of(daemon.directory / "state") == before, "it has a copy of the state"
    wait_until(lambda: daemon.ask("status")["last_error"] is None, "the daemon to go on")
    assert {row["percent"] for row in daemon.ask("status")["accounts"] if row["account"] == "bio"} == {50.0}

    difference = daemon.ask("plan", "--config", str(new))
    assert difference["entitlements"] == ["bio: 50 % -> 25 %", "physics: 50 % -> 25 %"]

    new.write_text("[policy]\nno_such_key = 1\n")
    wrong = tried(new)
    assert (wrong.returncode, wrong.stdout.count("\n")) == (2, 1)
