"""omfsd as a process of its own on a private real Slurm, and how to kill it at a chosen point."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from omfs_daemon.cli.main import app
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.testing.local_slurm.daemon_program import daemon_program
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.waiting import LIMIT, wait_until

ROOT = Path(__file__).parents[2]
OMFSD = "from omfs_daemon.cli.omfsd import run; run()"
OMFS = "from omfs_daemon.cli.main import run; run()"

CONFIG = """
[slurm]
conf = "{conf}"
poll_seconds = 0.3
[daemon]
user = "{user}"
state_dir = "{directory}/state"
run_dir = "{directory}/run"
failsafe_grace_seconds = 2
[policy]
quantum_seconds = 0
preempt_timeout_seconds = {limit}
start_timeout_seconds = {limit}
[metrics]
enabled = false
[entitlements.bio]
percent = 50
[entitlements.physics]
percent = 50
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "regular"
methods = ["requeue", "suspend"]
"""

STAYS = 3600.0
"""Seconds after which even a job that nobody lets end is over."""


class Daemon:
    """One installation: a directory with configuration and state; the process comes and goes. Root starts omfsd, which
    becomes SlurmUser, or another ``user``."""

    def __init__(self, slurm: LocalSlurm, directory: Path, user: str = "") -> None:
        self.slurm = slurm
        self.directory = directory
        directory.chmod(0o755)
        self.program = daemon_program(user or slurm.shape.slurm_user)
        self.config = directory / "omfs.toml"
        self.config.write_text(CONFIG.format(conf=slurm.conf, user=self.program.user, directory=directory, limit=LIMIT))
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        self.gateway = slurm.gateway()

    # -- the process --------------------------------------------------------------------------------
    def start(self, code: str = OMFSD, *arguments: str, ready: bool = True) -> None:
        """Start it; ``ready``: wait until it answers on its socket."""
        with self.log.open("ab") as log:
            self.process = self.program.start(
                code,
                "-c",
                str(self.config),
                *arguments,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if ready:
            wait_until(lambda: self.ask("status", check=False).get("last_poll"), "omfsd to look at Slurm")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(LIMIT)
        self.process = None
        return code

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def wait_for_death(self, limit: float = LIMIT) -> None:
        """Until the process has killed itself."""
        assert self.process is not None
        self.process.wait(limit)
        assert self.process.returncode == -signal.SIGKILL, self.log.read_text()[-2000:]
        self.process = None

    # -- the command line -----------------------------------------------------------------------------
    def omfs(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """The command in this process: a new one takes most of a second to come up, and tests ask often. But for the
        failsafe, which gives up root for good."""
        if arguments == ("failsafe",):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = self.program.start(OMFS, "-c", str(self.config), *arguments, cwd=ROOT, **pipes)
            done = subprocess.CompletedProcess(arguments, process.wait(LIMIT), *process.communicate())
            assert not check or done.returncode == 0, done.stderr
            return done
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["-c", str(self.config), *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert not check or result.exit_code == 0, result.stderr
        return subprocess.CompletedProcess(("omfs", *arguments), result.exit_code, result.stdout, result.stderr)

    def ask(self, *arguments: str, check: bool = True) -> dict[str, Any]:
        done = self.omfs(*arguments, "--json", check=check)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found

    def why_text(self, job_id: int) -> str:
        """What ``omfs why`` prints, on one line and without the borders of its tables."""
        return re.sub(r"[│\s]+", " ", self.omfs("why", str(job_id), check=False).stdout)

    def why(self, job_id: int) -> dict[str, Any]:
        """What is known of a job, once omfsd has seen it."""
        return wait_until(lambda: self.ask("why", str(job_id), check=False), f"omfsd to see job {job_id}")

    # -- jobs ------------------------------------------------------------------------------------------
    def submit(
        self, account: str, *arguments: str, seconds: float = STAYS, method: str = "", uid: str | None = None
    ) -> int:
        """Four CPUs of one node. The job stays until ``let_end``, however long a busy machine takes to observe it, or
        works so many ``seconds``: in small steps, for a single sleep goes on while the job is suspended."""
        work = f"i=0; while [ $i -lt {round(seconds * 10)} ] && {self.stays}; do sleep 0.1; i=$((i+1)); done"
        comment = [f"--comment=omfs:method={method}"] if method else []
        return self.slurm.submit(work, "-A", account, "-n4", "-N1", "-o", "/dev/null", *comment, *arguments, uid=uid)

    @property
    def stays(self) -> str:
        """Whether the job that asks may not end yet, as a condition of its shell."""
        return f"[ ! -e {self.slurm.output}/ends-$SLURM_JOB_ID ]"

    def let_end(self, *job_ids: int) -> None:
        """Jobs that stay may end."""
        for job_id in job_ids:
            (self.slurm.output / f"ends-{job_id}").touch()

    def job(self, job_id: int) -> Job:
        found = self.gateway.find(job_id)
        assert found is not None, f"job {job_id} is lost"
        return found

    def runs(self, *job_ids: int) -> bool:
        return all(self.job(job_id).state is JobState.RUNNING for job_id in job_ids)

    def wait_running(self, *job_ids: int, limit: float = LIMIT) -> None:
        wait_until(lambda: self.runs(*job_ids), f"jobs {job_ids} to run; log: {self.tail()}", limit)

    def wait_rest(self, limit: float = LIMIT) -> None:
        """Until every job has ended."""
        wait_until(lambda: not self.gateway.jobs(), f"all jobs to end: {self.observation()}; log: {self.tail()}", limit)

    def completed(self, job_ids: Sequence[int]) -> bool:
        """Whether Slurm says COMPLETED of each."""
        words = [
            self.slurm.command("scontrol", "-o", "show", "job", str(job_id)).stdout.partition("JobState=")[2].split()[0]
            for job_id in job_ids
        ]
        return words == ["COMPLETED"] * len(job_ids)

    def held(self) -> list[str]:
        return [job.ref for job in self.gateway.jobs() if job.hold is not Hold.NONE]

    def observation(self) -> list[str]:
        return [f"{job.ref} {job.account} {job.state} {job.reason} {job.admin_comment}" for job in self.gateway.jobs()]

    def tail(self) -> str:
        return self.log.read_text()[-1500:] if self.log.exists() else ""


def dying_at(step: str, after_orders: bool) -> str:
    """Code of an omfsd that kills itself (SIGKILL) once a preemption's ``step`` is on record, or that cycle's orders
    are sent."""
    return f"""
import os, signal
from omfs_daemon.daemon.effects_runner import EffectsRunner
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.preemption.state import PreemptionChanged
def die_if(records):
    if any(isinstance(r, PreemptionChanged) and r.preemption.step == {step!r} for r in records):
        os.kill(os.getpid(), signal.SIGKILL)
write, carry_out = Journal.write, EffectsRunner.carry_out
def dying_write(self, *records):
    write(self, *records)
    die_if(records)
def dying_carry_out(self, effects, *rest):
    carry_out(self, effects, *rest)
    die_if(effects.records)
if {after_orders}:
    EffectsRunner.carry_out = dying_carry_out
else:
    Journal.write = dying_write
from omfs_daemon.cli.omfsd import run
run()
"""


def with_clock_of(file: Path) -> str:
    """Code of an omfsd whose clock is wrong by as many seconds as the file says. libfaketime keeps it from starting."""
    return f"""
import time
from pathlib import Path
right = time.time
time.time = lambda: right() + float(Path({str(file)!r}).read_text() or 0)
from omfs_daemon.cli.omfsd import run
run()
"""
