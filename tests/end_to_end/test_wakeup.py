"""omfsd is woken by what happens in Slurm, long before its poll; and Slurm never waits for it."""

from __future__ import annotations

import json
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.config.schema import WAKE_FILE, WAKE_LATER_FILE
from omfs_daemon.daemon.poll_schedule import LATER
from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.conftest import clear
from tests.support.daemons import ROOT, Daemon
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

POLL = 600  # seconds: nothing here lasts as long


WHERE_POLLS_TAKE_LONG = """
from omfs_daemon.daemon import poll_schedule
poll_schedule.QUICK_ENOUGH = -1.0
from omfs_daemon.cli.omfsd import run
run()
"""
"""Code of an omfsd to which no poll of all jobs is quick, as with thousands of them."""

ADMINISTRATOR = "backup"
"""A user of Debian's."""


@pytest.fixture(scope="module", params=["slurm", "root", ADMINISTRATOR])
def user(request: pytest.FixtureRequest) -> str:
    """Who runs omfsd: SlurmUser, or an Administrator of slurmdbd."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def cluster(user: str) -> Iterator[LocalSlurm]:
    """Two nodes, with our plug-in, and a word to the daemon when a job ends."""
    directory = Path(tempfile.mkdtemp(prefix="omfs-wakeup-"))
    directory.chmod(0o755)
    run = directory / "omfs" / "run"
    epilog = directory / "epilog"
    epilog.write_text(f"#!/bin/sh\n: >> {run / WAKE_LATER_FILE}\n")
    epilog.chmod(0o755)
    settings = {"heartbeat": f"{run}/heartbeat", "wake": f"{run}/{WAKE_FILE}", "class_1": "partition=urgent;urgent=yes"}
    slurm_user, accounting = ("slurm", Accounting(administrators=[user])) if user == ADMINISTRATOR else (user, None)
    shape = Shape(2, options={"EpilogSlurmctld": str(epilog), "SlurmUser": slurm_user})
    gate = SubmitGate(ROOT / "plugins" / "job_submit.lua", settings, daemon_program(user).user)
    try:
        with LocalSlurm(directory / "slurm", shape, gate=gate, accounting=accounting, limit=LIMIT) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def daemon(cluster: LocalSlurm, user: str) -> Iterator[Daemon]:
    """It lives in the directory that the plug-in knows."""
    directory = cluster.directory.parent / "omfs"
    directory.mkdir()
    installation = Daemon(cluster, directory, user)
    configure(installation, f"poll_seconds = {POLL}")
    try:
        yield installation
    finally:
        installation.kill()
        clear(cluster)
        shutil.rmtree(directory)


def configure(daemon: Daemon, *slurm: str) -> None:
    text = daemon.config.read_text()
    text = text.replace("poll_seconds = 0.3", "\n".join(slurm)).replace("[daemon]", '[daemon]\nlog_level = "debug"')
    daemon.config.write_text(text)


def looks(daemon: Daemon) -> int:
    return len(cycles(daemon))


def cycles(daemon: Daemon) -> list[dict[str, Any]]:
    lines = daemon.log.read_text().splitlines()
    return [json.loads(line) for line in lines if '"event": "cycle_timed"' in line]


def rest(daemon: Daemon) -> int:
    """Until nothing wakes it any more, and what was not urgent has been looked for; how often it has looked by then."""
    seen, since = looks(daemon), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, since
        if looks(daemon) != seen:
            seen, since = looks(daemon), time.monotonic()
        return time.monotonic() - since > 2 * LATER

    wait_until(is_still, "the daemon to rest")
    return seen


def test_it_has_given_up_root_if_slurm_user_is_another(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    uid = pwd.getpwnam(daemon.program.user).pw_uid
    processes = [psutil.Process(daemon.process.pid), *psutil.Process(daemon.process.pid).children()]
    assert set(processes[0].uids()) == {uid}
    assert (0 in {process.uids().real for process in processes[1:]}) == (uid != 0), "the root process"
    wake = [daemon.directory / "run" / name for name in (WAKE_FILE, WAKE_LATER_FILE)]
    slurm_user = daemon.slurm.shape.slurm_user
    wait_until(lambda: all(file.owner() == slurm_user for file in wake), "the wake files to be SlurmUser's")
    found = json.loads(daemon.omfs("check", "--json", check=False).stdout)["findings"]
    levels = {finding["subject"]: finding["level"] for finding in found}
    assert (levels["permissions"], levels["daemon_uid"]) == ("ok" if uid else "warn", "ok")


def test_an_urgent_job_runs_long_before_the_next_poll(daemon: Daemon) -> None:
    daemon.start()
    bio = [daemon.submit("bio", method="requeue") for _ in range(2)]
    daemon.wait_running(*bio)
    rest(daemon)
    urgent = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(urgent)
    assert sum(daemon.runs(job) for job in bio) == 1, "it was preempted for"


def test_only_new_jobs_are_asked_for_where_a_poll_of_all_takes_long(daemon: Daemon) -> None:
    daemon.start(WHERE_POLLS_TAKE_LONG)
    bio = [daemon.submit("bio", method="requeue") for _ in range(2)]
    daemon.wait_running(*bio)
    rest(daemon)
    urgent = daemon.submit("alarm", "-p", "urgent")
    daemon.wait_running(urgent)
    assert [cycle["poll"] for cycle in cycles(daemon) if cycle["preemptions"]] == ["urgent"]
    assert sum(daemon.runs(job) for job in bio) == 1, "it was preempted for"


def test_the_end_of_a_job_wakes(daemon: Daemon) -> None:
    daemon.start()
    job = daemon.submit("bio", method="requeue")
    daemon.wait_running(job)
    before = rest(daemon)
    daemon.slurm.command("scancel", str(job))
    wait_until(lambda: looks(daemon) > before, "another look")


def test_slurm_does_not_wait_for_a_daemon_that_is_stopped_or_dead(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        # Each command has a timeout, and the job starts at once: the daemon's last heartbeat is still fresh.
        submitted = [daemon.submit("bio", seconds=0.1, method="requeue") for _ in range(3)]
        wait_until(lambda: all(daemon.job(job).state is JobState.ENDED for job in submitted), "jobs to end")
        before = looks(daemon)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: looks(daemon) > before, "a look, for it was woken meanwhile")
    daemon.kill()
    submitted = [daemon.submit("bio", seconds=0.1, method="requeue") for _ in range(3)]
    wait_until(lambda: all(daemon.job(job).state is JobState.ENDED for job in submitted), "jobs to end")


@pytest.mark.parametrize("name", [WAKE_FILE, WAKE_LATER_FILE])
def test_a_storm_of_events_makes_no_more_calls_than_allowed(daemon: Daemon, name: str) -> None:
    """Each look is two calls at least: one in a second. For five seconds it may be faster, which starting has used up
    in part."""
    daemon.config.write_text(daemon.config.read_text().replace("[slurm]", "[slurm]\ncalls_per_second = 2"))
    daemon.start()
    begun, before = time.monotonic(), looks(daemon)
    for _ in range(1000):
        with (daemon.directory / "run" / name).open("a"):
            pass
    wait_until(lambda: looks(daemon) > before, "a look")
    more = looks(daemon) - before
    assert more <= 8 + time.monotonic() - begun, "a slow machine had more time for them"
