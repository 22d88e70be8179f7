"""Jobs under omfs-run on a real Slurm with the real daemon: submitted as an ordinary user, watched, counted."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from deploy.zipapps import build
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.run_report import RunReport, RunState, run_report
from tests.support.daemons import OMFSD, Daemon
from tests.support.programs import CODE, Programs, counted, is_gapless
from tests.support.waiting import LIMIT, wait_until

USER = "nobody"

CONFIG = """
[slurm]
conf = "{conf}"
poll_seconds = 0.3
[daemon]
user = "{user}"
state_dir = "{directory}/state"
run_dir = "{directory}/run"
[policy]
quantum_seconds = 0
retry_after_seconds = 5
preempt_timeout_seconds = {limit}
start_timeout_seconds = {limit}
[metrics]
enabled = false
[entitlements.bio]
percent = 100
[methods.application]
preempt_timeout_seconds = {patience}
[methods.dmtcp]
preempt_timeout_seconds = {patience}
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "bold"
account = ["bold"]
when_preemption_fails = "requeue"
[[class]]
name = "regular"
"""


class Jobs:
    """On one cluster, for one test; ``home``: where its user's jobs run and write."""

    def __init__(self, daemon: Daemon, programs: Programs) -> None:
        self.daemon = daemon
        self.slurm = daemon.slurm
        self.programs = programs
        self.run = build("omfs-run", programs.directory)
        self.home = Path(tempfile.mkdtemp(prefix="home-", dir=self.slurm.output))
        user = pwd.getpwnam(USER)
        os.chown(self.home, user.pw_uid, user.pw_gid)
        self.owner = user.pw_uid
        self.configure()

    def configure(self, patience: float = LIMIT) -> None:
        """The daemon's configuration; ``patience``: seconds that a preemption may take."""
        daemon = self.daemon
        daemon.config.write_text(
            CONFIG.format(
                conf=self.slurm.conf,
                user=daemon.program.user,
                directory=daemon.directory,
                limit=LIMIT,
                patience=patience,
            )
        )

    # -- submitting -------------------------------------------------------------------------------------------------
    def submit(
        self,
        method: str,
        kind: str = "single",
        *arguments: str,
        options: str = "",
        fault: str = "",
        account: str = "bio",
        cpus: int = 4,
    ) -> int:
        """A job under omfs-run on ``cpus`` CPUs of a node; ``fault``: which copy of the stand-in is used."""
        path = self.programs.dmtcp(fault)
        start = f"exec {self.run} {options} {self.programs.command(method, kind)}"
        script = f"#!/bin/bash\nexport PATH={path}:$PATH OMFS_LIB={path.parent}/lib\n{start}\n"
        return self.batch(script, f"--comment=omfs:method={method}", *arguments, account=account, cpus=cpus)

    def batch(self, script: str, *arguments: str, account: str = "bio", cpus: int = 4) -> int:
        place = (f"--chdir={self.home}", "--output=job-%j.out", "--open-mode=append", f"-n{cpus}", "-N1")
        return self.slurm.submit(script, "-A", account, *place, *arguments, uid=USER)

    def urgent(self, node: str = "", stays: bool = False) -> int:
        """Needs a node, or the whole cluster, for two seconds; one that ``stays``, until ``Daemon.let_end``."""
        wanted = ("-n4", "-N1", f"--nodelist={node}") if node else ("-n16",)
        work = f"while {self.daemon.stays}; do sleep 0.1; done" if stays else "sleep 2"
        return self.slurm.submit(work, "-A", "alarm", "-p", "urgent", "-o", "/dev/null", *wanted)

    # -- watching ---------------------------------------------------------------------------------------------------
    def now(self, jobs: Collection[int]) -> dict[int, Job]:
        return {job.id: job for job in self.daemon.gateway.jobs() if job.id in jobs}

    def report(self, job: int) -> RunReport | None:
        found = self.now([job]).get(job)
        return run_report(found) if found is not None else None

    def until(self, what: str, condition: Callable[[], Any], *jobs: int, limit: float = LIMIT) -> Any:
        try:
            return wait_until(condition, what, limit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.observation(*jobs)}") from None

    def wait_ready(self, *jobs: int, restarts: int = 0) -> None:
        """Until omfs-run reports each ready in this run, and each has counted on since."""

        def ready() -> bool:
            found = self.now(jobs)
            reports = [run_report(job) for job in found.values() if job.runs]
            return len(reports) == len(jobs) and all(
                run is not None and run.state is RunState.READY and run.restarts == restarts for run in reports
            )

        self.until(f"jobs {jobs} to be ready, run {restarts}", ready, *jobs)
        self.wait_counting(*jobs)

    def wait_counting(self, *jobs: int, more: int = 3) -> None:
        before = {job: self.length(job) for job in jobs}
        self.until("counting", lambda: all(self.length(job) >= before[job] + more for job in jobs), *jobs)

    def wait_report(self, job: int, state: RunState) -> RunReport:
        def found() -> RunReport | None:
            run = self.report(job)
            return run if run is not None and run.state is state else None

        run: RunReport = self.until(f"job {job} to report {state}", found, job)
        return run

    def wait_running(self, *jobs: int) -> None:
        self.until(f"jobs {jobs} to run", lambda: self.daemon.runs(*jobs), *jobs)

    def wait_ended(self, *jobs: int) -> None:
        self.until(f"jobs {jobs} to end", lambda: not self.now(jobs), *jobs)

    def wait_reported(self, job: int, text: str) -> None:
        """Until ``omfs why`` has this text about the job."""
        self.until(f"{text!r} of job {job}", lambda: text in self.why_text(job), job)

    def why(self, job: int) -> dict[str, Any]:
        return self.daemon.why(job)

    def why_text(self, job: int) -> str:
        """All that ``omfs why`` has about a job."""
        view = self.why(job)
        return " | ".join(
            [view["now"], *(event["text"] for event in view["events"]), *(str(method) for method in view["methods"])]
        )

    def paid(self) -> list[dict[str, Any]]:
        """The records of all victims so far."""
        return [victim for preemption in self.daemon.ask("history")["preemptions"] for victim in preemption["victims"]]

    # -- counting ---------------------------------------------------------------------------------------------------
    def counts(self, job: int) -> dict[str, list[int]]:
        return counted(self.home, job)

    def length(self, job: int) -> int:
        """How far the slowest worker has come; 0 before all of them have begun."""
        return min((len(numbers) for numbers in self.counts(job).values()), default=0)

    def finish(self, *jobs: int, restarts: int | None = None, started_over: Collection[int] = ()) -> None:
        """``complete``, and nothing of ours is left."""
        self.complete(*jobs, restarts=restarts, started_over=started_over)
        self.nothing_left()

    def complete(self, *jobs: int, restarts: int | None = None, started_over: Collection[int] = ()) -> None:
        """Let all programs end; they must end with their own exit code, and nothing be missing or done twice, but by
        those that ``started_over``."""
        (self.home / "finish").touch()
        self.wait_ended(*jobs)
        for job in jobs:
            shown = self.shown(job)
            assert f"ExitCode={CODE}:0" in shown, f"{shown}\n{self.observation(job)}"
            listed = self.slurm.command("squeue", "--noheader", "--states=all", f"--jobs={job}", "--Format=exit_code")
            assert int(listed.stdout.split()[0].split(":")[0]) in (CODE, CODE << 8), listed.stdout
            for name, numbers in self.counts(job).items():
                whole = is_gapless(numbers[numbers.index(1, 1) :] if job in started_over else numbers)
                assert whole, f"{name}: {numbers}\n{self.observation(job)}"
            if restarts is not None:
                assert f" Restarts={restarts} " in shown, shown

    def nothing_left(self) -> None:
        """Nothing of ours stays held or stopped, and no preemption is under way."""
        self.until(
            "the daemon to be done",
            lambda: not (status := self.daemon.ask("status"))["preemptions_under_way"] and not status["held"],
        )
        assert not self.daemon.held(), self.daemon.observation()

    # -- output -----------------------------------------------------------------------------------------------------
    def shown(self, job: int) -> str:
        return self.slurm.command("scontrol", "--oneliner", "show", "job", str(job)).stdout

    def output(self, job: int) -> str:
        path = self.home / f"job-{job}.out"
        return path.read_text(errors="replace") if path.exists() else "(no output)"

    def checkpoints(self, job: int) -> Path:
        return self.slurm.output / f"omfs-checkpoint.{job}"  # where sbatch was run

    def observation(self, *jobs: int) -> str:
        """What a failed test shows."""
        lines = [f"{job}: {self.output(job)}" for job in jobs]
        lines += [
            f"{job.ref} {job.state} {job.hold} {job.reason} {job.comment!r}" for job in self.daemon.gateway.jobs()
        ]
        return "\n".join([*lines, self.daemon.tail()])


def dry() -> tuple[str, str]:
    """What starts a daemon that orders nothing."""
    return OMFSD, "--dry-run"
