"""A private Slurm with slurmdbd, both plug-ins, and omfsd, beside which client programs run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omfs_daemon.slurm.commands.run_command import environment
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from omfs_daemon.testing.local_slurm.slurmdbd import Accounting
from tests.support.daemons import Daemon
from tests.support.gated_clusters import gated_cluster, gated_daemon
from tests.support.waiting import LIMIT, wait_until

PROGRAMS = Path(__file__).parents[1] / "clients" / "programs"
METHODS = ("suspend", "requeue")
NODES = 2


@contextmanager
def client_cluster() -> Iterator[LocalSlurm]:
    """Jobs may be preempted by suspension and by requeue; without a choice the former, which is cheaper."""
    listed = ",".join(METHODS)
    classes = {"class_1": "partition=urgent;urgent=yes", "class_2": f"methods={listed};default={listed}"}
    accounting = Accounting(["bio", "physics"], ["root"])
    shape = Shape(NODES, options={"KillWait": "5"})
    with gated_cluster("clients", classes, shape, accounting, spank=True) as slurm:
        yield slurm


@contextmanager
def client_daemon(cluster: LocalSlurm) -> Iterator[Daemon]:
    with gated_daemon(cluster) as daemon:
        listed = json.dumps(METHODS)
        text = daemon.config.read_text().replace('methods = ["requeue", "suspend"]', f"methods = {listed}")
        daemon.config.write_text(text + f"default = {listed}\n")
        daemon.start()
        yield daemon


class ClientRun:
    """A client program under way, in a directory of its own. ``python``: what runs it, or a command of Slurm's."""

    def __init__(self, slurm: LocalSlurm, folder: Path, *command: str, python: str = sys.executable) -> None:
        self.folder = folder
        self._log = folder / "client.log"
        # snakemake's jobs forget SLURM_CONF; at a site, srun finds slurm.conf without it.
        srun = folder / "bin" / "srun"
        srun.parent.mkdir()
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={slurm.conf} exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        variables = environment(slurm.conf)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, *command],
                cwd=folder,
                env=variables | {"PATH": f"{srun.parent}:{Path(python).parent}:{variables['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_for(self, *names: str) -> None:
        """Until these files are there."""

        self.wait_until(lambda: all((self.folder / name).exists() for name in names), ", ".join(names))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """While the client runs."""

        def holds() -> bool:
            assert self._process.poll() is None, f"the client has ended: {self.log}"
            return condition()

        wait_until(holds, lambda: f"{what}: {self.log}")

    def end(self) -> None:
        """Its jobs may end."""
        (self.folder / "end").touch()

    def result(self) -> Any:
        """What it has printed, once it has ended well."""
        try:
            printed, _ = self._process.communicate(timeout=LIMIT)
        finally:
            self.kill()
        assert self._process.returncode == 0, self.log
        return json.loads(printed.splitlines()[-1])

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def exit_code(self) -> int:
        """Once it has ended."""
        return self._process.wait(LIMIT)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LIMIT)

    @property
    def log(self) -> str:
        return self._log.read_text()[-3000:]


@contextmanager
def client_run(slurm: LocalSlurm, folder: Path, *command: str, python: str = sys.executable) -> Iterator[ClientRun]:
    """It ends with the test."""
    run = ClientRun(slurm, folder, *command, python=python)
    try:
        yield run
    finally:
        run.kill()


def urgent(daemon: Daemon) -> int:
    """A job that needs all nodes, and runs."""
    job = daemon.submit("physics", "-p", "urgent", f"-N{NODES}", f"-n{4 * NODES}")
    daemon.wait_running(job)
    return job
