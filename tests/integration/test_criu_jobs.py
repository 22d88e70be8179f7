"""omfs-run with real CRIU in real jobs: several at once, stopped twice, and nothing missing or done twice."""

from __future__ import annotations

import signal

import pytest

from deploy.zipapps import build
from omfs_daemon.protocol import job_comment as word
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slurm

USER = "nobody"
JOBS = 4

# Counts to its output and to a file that is opened for each number; ends with exit code 7 when told to.
SCRIPT = """#!/bin/bash
exec {run} --method criu sh -c '
    trap "exit 7" USR2
    number=0
    while :; do
        number=$((number + 1))
        echo $number >>count-$SLURM_JOB_ID
        echo $number
        sleep 0.02
    done'
"""


def test_jobs_preempted_together_twice_continue_where_they_were(slurm: LocalSlurm) -> None:
    script = SCRIPT.format(run=build("omfs-run", slurm.directory))
    options = ("--output=criu-%j.out", "--error=criu-%j.err", "--open-mode=append", "--ntasks=1")
    jobs = [slurm.submit(script, *options, uid=USER) for _ in range(JOBS)]

    def shown(job: int) -> str:
        return slurm.command("scontrol", "--oneliner", "show", "job", str(job)).stdout

    def counted(job: int, name: str) -> list[int]:
        path = slurm.output / name.format(job)
        return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def ready(job: int, restarts: int) -> word.RunComment | None:
        comment = slurm.command("squeue", "--noheader", f"--jobs={job}", "--format=%k").stdout.strip()
        said = word.find_run_comment(comment)
        return said if said and (said.restarts, said.state) == (restarts, "ready") else None

    def told(job: int) -> str:
        path = slurm.output / f"criu-{job}.err"
        return f"job {job}: {path.read_text() if path.exists() else ''}"

    for restarts in range(3):
        for job in jobs:
            said = wait_until(lambda job=job, run=restarts: ready(job, run), f"run {restarts} of {told(job)}")
            assert said.fields["method"] == "criu"
            assert restarts == 0 or said.fields["from"] == str(restarts), told(job)
            before = len(counted(job, "count-{}"))
            wait_until(
                lambda job=job, before=before: len(counted(job, "count-{}")) > before + 5,
                f"counting of {told(job)}",
            )
        if restarts == 2:
            break
        for job in jobs:
            slurm.command("scancel", "--signal=USR1", "--batch", str(job))
        for job in jobs:
            held = wait_until(
                lambda job=job: "JobState=SPECIAL_EXIT" in shown(job) and shown(job), f"the hold of {told(job)}"
            )
            assert "Priority=0" in held
            slurm.command("scontrol", "release", str(job), uid=USER)
    for job in jobs:
        slurm.command("scancel", f"--signal={signal.SIGUSR2.name[3:]}", "--batch", str(job))
    for job in jobs:
        wait_until(lambda job=job: "ExitCode=7:0" in shown(job), f"the end of {told(job)}")
        numbers = counted(job, "count-{}")
        assert numbers == list(range(1, len(numbers) + 1)), told(job)
        assert counted(job, "criu-{}.out") == numbers, told(job)
