"""A private real Slurm with our submit plug-in, which watches the omfsd that lives beside it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from omfs_daemon.config.schema import WAKE_FILE
from omfs_daemon.daemon.admission_file import ADMISSION_FILE
from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.conftest import clear
from tests.support.daemons import ROOT, Daemon
from tests.support.waiting import LIMIT, wait_until


@contextmanager
def gated_cluster(
    name: str,
    classes: Mapping[str, str],
    shape: Shape | None = None,
    accounting: Accounting | None = None,
    spank: bool = False,
) -> Iterator[LocalSlurm]:
    """``classes``: as in omfs_job_submit.conf; ``spank``: with the SPANK plug-in too."""
    directory = Path(tempfile.mkdtemp(prefix=f"omfs-{name}-"))
    directory.chmod(0o755)
    run = directory / "omfs" / "run"
    settings = {"heartbeat": f"{run}/heartbeat", "wake": f"{run}/{WAKE_FILE}", **classes}
    shape = shape or Shape()
    gate = SubmitGate(ROOT / "plugins" / "job_submit.lua", settings, daemon_program(shape.slurm_user).user)
    try:
        files = {"plugstack.conf": f"optional {_spank(directory / 'build')}\n"} if spank else {}
        with LocalSlurm(
            directory / "slurm", shape, gate=gate, files=files, accounting=accounting, limit=LIMIT
        ) as slurm:
            yield slurm
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def living_daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    """As ``gated_daemon``; it lives, and the gate has room to give."""
    with gated_daemon(cluster) as installation:
        installation.start()
        wait_until((installation.directory / "run" / ADMISSION_FILE).exists, "the room of accounts")
        yield installation


def wait_for_cycles(daemon: Daemon, number: int) -> None:
    for _ in range(number):
        before = daemon.ask("status")["last_poll"]
        wait_until(lambda before=before: daemon.ask("status")["last_poll"] > before, "another poll")  # type: ignore[misc]


def _spank(build: Path) -> Path:
    target = build / "omfs_spank.so"
    subprocess.run(["make", "-s", "-C", ROOT / "plugins", f"BUILD={build}", target], check=True, timeout=LIMIT)
    return target


@contextmanager
def gated_daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    """It lives in the directory that the plug-in knows; not started yet. Its jobs end with it."""
    directory = cluster.directory.parent / "omfs"
    directory.mkdir()
    installation = Daemon(cluster, directory)
    try:
        yield installation
    finally:
        installation.kill()
        clear(cluster)
        shutil.rmtree(directory)
