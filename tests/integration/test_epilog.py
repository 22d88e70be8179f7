"""EpilogSlurmctld on a real Slurm: a job's end wakes the daemon at once, and whatever is wrong there delays nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.config.schema import WAKE_LATER_FILE
from omfs_daemon.daemon.wakeup import Wakeup
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.conftest import clear
from tests.support.waiting import LIMIT, wait_until

pytestmark = pytest.mark.slurm

PLUGINS = Path(__file__).parents[2] / "plugins"


def installed(below: Path, rundir: Path) -> Path:
    """The script as `make install` makes it for a daemon with that run_dir."""
    words = [f"BUILD={below / 'build'}", f"DESTDIR={below}", "prefix=/usr", f"rundir={rundir}"]
    subprocess.run(["make", "-s", "-C", PLUGINS, "install", *words], check=True, timeout=LIMIT)
    return below / "usr/libexec/omfs/epilog_slurmctld"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalSlurm]:
    directory = Path(tempfile.mkdtemp(prefix="omfs-ends-"))
    directory.chmod(0o755)
    try:
        (directory / "run").mkdir()
        epilog = installed(directory / "root", directory / "run")
        shape = Shape(nodes=1, options={"EpilogSlurmctld": str(epilog)})
        with LocalSlurm(directory / "slurm", shape, limit=LIMIT) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def slurm(cluster: LocalSlurm) -> Iterator[LocalSlurm]:
    yield cluster
    clear(cluster)


@pytest.fixture
def woken(slurm: LocalSlurm) -> Iterator[Event]:
    """Set whenever the daemon is woken for what is not urgent."""
    seen = Event()
    wakeup = Wakeup(slurm.directory.parent / "run", lambda: None, seen.set)
    wakeup.belong_to(pwd.getpwnam(slurm.shape.slurm_user).pw_uid)
    try:
        yield seen
    finally:
        wakeup.close()


def running(slurm: LocalSlurm, script: str) -> int:
    job = slurm.submit(script, uid="nobody")
    wait_until(lambda: state(slurm, job) is JobState.RUNNING, "the job to run")
    return job


def state(slurm: LocalSlurm, job: int) -> JobState:
    found = slurm.gateway().find(job)
    assert found is not None
    return found.state


def test_the_end_of_a_job_wakes_the_daemon(slurm: LocalSlurm, woken: Event) -> None:
    go = slurm.output / "go"
    running(slurm, f"while [ ! -e {go} ]; do sleep 0.1; done")
    assert not woken.is_set(), "nothing but an end wakes it here"
    go.touch()
    assert woken.wait(LIMIT)


@pytest.mark.parametrize("order", [["scancel"], ["scontrol", "requeue"], ["scontrol", "requeuehold"]])
def test_so_do_a_cancelled_and_a_requeued_one(slurm: LocalSlurm, woken: Event, order: list[str]) -> None:
    job = running(slurm, "exec sleep 3600")
    assert not woken.is_set()
    slurm.command(*order, str(job))
    assert woken.wait(LIMIT)


def test_without_a_daemon_jobs_end_as_before(slurm: LocalSlurm) -> None:
    file = slurm.directory.parent / "run" / WAKE_LATER_FILE
    file.unlink(missing_ok=True)
    job = slurm.submit("true", uid="nobody")
    wait_until(lambda: state(slurm, job) is JobState.ENDED, "the job to end")
    assert not file.exists(), "it makes no file of its own"
    assert "epilog" not in (slurm.directory / "log/slurmctld.log").read_text().lower()


def test_it_never_fails_and_never_waits(tmp_path: Path) -> None:
    script, wake = installed(tmp_path / "root", tmp_path / "run"), tmp_path / "run" / WAKE_LATER_FILE

    def says() -> tuple[int, bytes, bytes]:
        done = subprocess.run([script], env={}, capture_output=True, timeout=LIMIT)
        return done.returncode, done.stdout, done.stderr

    quiet = (0, b"", b"")
    assert says() == quiet, "no such directory"
    wake.parent.mkdir()
    assert says() == quiet, "no such file"
    os.mkfifo(wake)
    assert says() == quiet, "somebody must read it first"
    wake.unlink()
    wake.mkdir()
    assert says() == quiet, "a directory"
    wake.rmdir()
    wake.touch()
    wake.chmod(0o444)
    tmp_path.chmod(0o755)
    done = subprocess.run(
        ["setpriv", "--reuid=nobody", "--clear-groups", "sh", "-s"],
        input=script.read_bytes(),
        env={},
        capture_output=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout, done.stderr) == quiet, "not allowed"
