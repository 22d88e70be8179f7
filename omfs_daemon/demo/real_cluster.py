"""The demo on a private real Slurm, with omfsd as a process of its own."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import omfs_daemon
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.history_view import PastPreemptionView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.demo.demo_cluster import (
    CPUS_PER_NODE,
    LONGEST_HISTORY,
    NODES,
    DemoError,
    DemoJob,
    DemoJobResult,
    write_config,
)
from omfs_daemon.errors import UnreachableError
from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm, SubmitGate
from omfs_daemon.testing.local_slurm.slurm_conf import Shape

_OWNER = "nobody"
_UP_LIMIT = 30.0
_ASK_LIMIT = 10.0
_STOP_LIMIT = 10.0
_TICK = 0.1
_LOG_TAIL = 5

# The lines that the job writes prove what it did, whatever Slurm or omfsd report. A second of work is a sleep of its
# own: the clock of a sleep runs on while the job is suspended.
_SCRIPT = """\
#!/bin/sh
echo start
for step in $(seq {work}); do sleep 1; echo step $step; done
echo end
"""


class RealDemoCluster:
    """All its files are in ``directory``, which other users must be able to enter. Needs root."""

    name = "a private real Slurm"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._began = time.time()
        run_dir = directory / "run"
        shape = Shape(NODES, CPUS_PER_NODE, options={"KillWait": "2"})
        self._program = daemon_program(shape.slurm_user)
        self._slurm = LocalSlurm(directory / "slurm", shape, gate=_gate(run_dir / "heartbeat", self._program.user))
        self._client = Client(run_dir / "omfs.sock", timeout=_ASK_LIMIT)
        self._omfsd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._slurm.start()
        self._gateway = self._slurm.gateway()
        config = write_config(self._directory, self._slurm.conf, self._program.user)
        program = "from omfs_daemon.cli.omfsd import run; run()"
        with self._log.open("ab") as log:
            self._omfsd = self._program.start(
                program,
                "--config",
                str(config),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for the demo, which ends it in turn
            )
        self._wait_for_omfsd()

    def close(self) -> None:
        omfsd, self._omfsd = self._omfsd, None
        if omfsd is not None:
            omfsd.terminate()
            try:
                omfsd.wait(_STOP_LIMIT)
            except subprocess.TimeoutExpired:
                omfsd.kill()
                omfsd.wait(_STOP_LIMIT)
        self._slurm.stop()

    def now(self) -> float:
        return time.time()

    def tick(self) -> None:
        self._require_omfsd()
        time.sleep(_TICK)

    def submit(self, job: DemoJob) -> int:
        return self._slurm.submit(
            _SCRIPT.format(work=job.work),
            f"--job-name={job.name}",
            f"--account={job.account}",
            f"--partition={job.partition}",
            f"--comment={job.comment}",
            "--nodes=1",
            f"--ntasks={CPUS_PER_NODE}",
            f"--output={self._slurm.output}/%j.out",
            "--open-mode=append",
            uid=_OWNER,
        )

    def jobs(self) -> list[Job]:
        return self._gateway.jobs()

    def status(self) -> StatusView:
        try:
            return self._client.status()
        except UnreachableError:
            self._require_omfsd()  # which says more
            raise

    def preemptions(self) -> list[PastPreemptionView]:
        return self._client.history(LONGEST_HISTORY, self._began)["preemptions"]

    def result(self, job: DemoJob, job_id: int) -> DemoJobResult:
        shown = self._slurm.command("scontrol", "--oneliner", "show", "job", str(job_id), check=False).stdout
        lines = self._written_by(job_id)
        return DemoJobResult(
            outcome=_field(shown, "JobState"),
            restarts=int(_field(shown, "Restarts") or 0),
            starts=lines.count("start"),
            steps=sum(line.startswith("step ") for line in lines),
            finished=lines[-1:] == ["end"],
        )

    # -- inside ------------------------------------------------------------------------------------
    @property
    def _log(self) -> Path:
        return self._directory / "omfsd.log"

    def _written_by(self, job_id: int) -> list[str]:
        try:
            return (self._slurm.output / f"{job_id}.out").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def _wait_for_omfsd(self) -> None:
        end = time.monotonic() + _UP_LIMIT
        while not self._omfsd_has_polled():
            self.tick()
            if time.monotonic() > end:
                raise DemoError(f"omfsd has not polled Slurm within {_UP_LIMIT:g} s: {self._log_tail()}")

    def _omfsd_has_polled(self) -> bool:
        try:
            return self.status()["last_poll"] is not None
        except UnreachableError:
            return False

    def _require_omfsd(self) -> None:
        code = self._omfsd.poll() if self._omfsd is not None else None
        if code is not None:
            raise DemoError(f"omfsd ended with exit code {code}: {self._log_tail()}")

    def _log_tail(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL:])


def _field(shown: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", shown)
    return found.group(1) if found else ""


def _gate(heartbeat: Path, user: str) -> SubmitGate | None:
    """Our submit plug-in: beside this file in a wheel, in plugins/ in a checkout."""
    package = Path(omfs_daemon.__file__).parent
    for plugin in (package / "demo" / "job_submit.lua", package.parent / "plugins" / "job_submit.lua"):
        if plugin.is_file() and "function slurm_job_submit" in plugin.read_text(encoding="utf-8"):
            return SubmitGate(plugin, {"heartbeat": str(heartbeat)}, user)
    return None
