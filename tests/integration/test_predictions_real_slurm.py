"""Predictions on a real Slurm with slurmdbd: what accounting teaches, and starts against what Slurm expected."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean

import pytest

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.accounted_slurm import accounted_slurm
from tests.support.amounts import is_soak
from tests.support.daemons import Daemon
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("predictions")]

SHAPE = Shape(nodes=2, cpus=2)
WAITING = 10 if is_soak() else 4
SECONDS = 12 if is_soak() else 6


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with accounted_slurm(SHAPE) as slurm:
        place = slurm.directory / "omfs"
        place.mkdir()
        made = Daemon(slurm, place)
        yield made
        made.stop()


def teaching(slurm: LocalSlurm) -> dict[str, str]:
    """By raw id, the state of each record of accounting that teaches."""
    printed = slurm.command("sacct", "-a", "-X", "-P", "-n", "-D", "-S", "now-1hour", "--format=JobIDRaw,State,Start")
    rows = [line.split("|") for line in printed.stdout.splitlines()]
    return {job: state for job, state, start in rows if state in ("COMPLETED", "FAILED", "TIMEOUT") and start.strip()}


def test_accounting_and_ends_teach_and_starts_are_foreseen(daemon: Daemon) -> None:
    slurm = daemon.slurm

    def submit(seconds: float, *options: str) -> int:
        return slurm.submit(
            f"sleep {seconds}", "-A", "bio", "-o", "/dev/null", "--time=5", "--comment=omfs:method=requeue", *options
        )

    alike = ("-n2", "-N1", "--job-name=train_1")
    done = [submit(SECONDS, *alike) for _ in range(6)]
    done += [submit(1, "-n1", "--array=1-3", "--job-name=sweep"), submit(1, "-n1", "--job-name=brief")]
    canceled = submit(600, "-n1", "--job-name=train_2")
    wait_until(lambda: daemon.job(canceled).state is JobState.RUNNING, "the job to be canceled to run")
    slurm.command("scancel", str(canceled))
    requeued = submit(3, "-n1", "--requeue", "--job-name=again")
    wait_until(lambda: daemon.job(requeued).state is JobState.RUNNING, "the job to be requeued to run")
    slurm.command("scontrol", "requeue", str(requeued))
    slurm.command("scontrol", "update", f"jobid={requeued}", "starttime=now")
    daemon.wait_rest()
    wait_until(lambda: len(teaching(slurm)) == 6 + 3 + 1 + 1, "accounting to know all ends")

    # The daemon begins to learn when all has ended, as at its first start.
    daemon.start()
    known = wait_until(
        lambda: (found := daemon.ask("predict", "score")["learning"])["days_left"] == 0 and found, "the days to be read"
    )
    assert known["jobs"] == len(teaching(slurm)), "the canceled job, and the run that was requeued, do not teach"
    again = daemon.ask("predict", "learn", "--since", "2d")
    assert again["jobs"] == known["jobs"], "nothing is learned twice"
    predicted = daemon.ask("predict", "--user", "root", "--name", "train_9")["predictions"][0]
    assert SECONDS - 1 <= predicted["p50"] <= SECONDS + 3
    assert predicted["samples"] == 6

    # Both nodes are busy; what waits starts in the order of submission.
    waiting = [submit(SECONDS, *alike) for _ in range(2 + WAITING)]
    daemon.wait_running(*waiting[:2])
    behind = [str(job) for job in waiting[2:]]

    def answered() -> dict[str, dict[str, float]]:
        jobs = daemon.ask("when", *behind, check=False).get("jobs", [])
        return {job["job"]: job for job in jobs}

    estimates = wait_until(lambda: (found := answered()) and len(found) == WAITING and found, "estimates of all")
    slurm_starts = wait_until(
        lambda: (starts := daemon.gateway.expected_starts(waiting)) and len(starts) >= WAITING and starts,
        "Slurm to say when it expects the jobs to start",
    )
    asked = time.time()
    daemon.wait_rest()
    printed = slurm.command("sacct", "-X", "-P", "-n", "--format=JobIDRaw,Start", "-j", ",".join(behind)).stdout
    starts = {job: float(start) for job, start in (line.split("|") for line in printed.splitlines())}
    ours = [abs(starts[job] - estimates[job]["p50"]) for job in behind]
    slurms = [abs(starts[job] - slurm_starts[int(job)]) for job in behind]
    held = sum(starts[job] <= estimates[job]["p90"] for job in behind)
    print(
        f"mean error {fmean(ours):.1f} s, Slurm's {fmean(slurms):.1f} s, p90 held {held} of {WAITING}, at {asked:.0f}"
    )
    assert fmean(ours) < fmean(slurms)
    if is_soak():
        assert held >= 8
