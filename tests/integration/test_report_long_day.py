"""``omfs report`` on a scripted day on a real Slurm, 120 jobs in a soak, beside what slurmctld logged."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from omfs_daemon.accounting.asked_events import asked_down
from omfs_daemon.accounting.asked_sacct import asked_records, asking_slurm
from omfs_daemon.reports.log_report import LogReport, log_report
from omfs_daemon.reports.machine_use import Down, MachineSize
from omfs_daemon.testing.local_slurm.local_slurm import LocalSlurm
from omfs_daemon.testing.local_slurm.slurm_conf import Shape
from tests.support.accounted_slurm import accounted_slurm
from tests.support.amounts import is_soak
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("a long day of accounting")]

SHAPE = Shape(nodes=4, cpus=4)
CORES = 16
SMALL, TASKS, CHAINED, FAILED, NEVER, BEHIND = (40, 30, 10, 5, 4, 28) if is_soak() else (4, 4, 3, 1, 1, 4)
SUSPENDED, LARGE = 2, 1
# A job or a task of an array, its number last: "JobId=7", "JobId=7_2(9)".
STARTED = re.compile(r"\[([^]]+)\] sched(?:/backfill)?: .*(?:Allocate|Started) JobId=(?:\d+_\d+\((\d+)\)|(\d+))")


@pytest.fixture
def slurm() -> Iterator[LocalSlurm]:
    with accounted_slurm(SHAPE) as slurm:
        yield slurm


def submit(slurm: LocalSlurm, seconds: str, *options: str) -> int:
    return slurm.submit(seconds, "--output=/dev/null", "--time=2", *options)


def until(file: Path) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.1; done"


def day(slurm: LocalSlurm) -> dict[str, list[int]]:
    """Small jobs, an array, a chain, failed, canceled, suspended, a job of all CPUs with others behind it,
    and a node that is drained."""
    submitted, resumed = slurm.directory / "submitted", slurm.directory / "resumed"
    small = f"{until(submitted)}; sleep 2"
    jobs = {"small": [submit(slurm, small, "--account=bio", f"--ntasks={1 + at % 3}") for at in range(SMALL)]}
    jobs["array"] = [submit(slurm, "sleep 1", "--account=bio", f"--array=1-{TASKS}", "--ntasks=1")]
    jobs["chain"] = [submit(slurm, "sleep 1", "--account=physics", "--ntasks=1")]
    for _ in range(CHAINED - 1):
        options = ("--account=physics", "--ntasks=1", f"--dependency=afterok:{jobs['chain'][-1]}")
        jobs["chain"].append(submit(slurm, "sleep 1", *options))
    jobs["failed"] = [submit(slurm, "exit 3", "--account=bio", "--ntasks=1") for _ in range(FAILED)]
    jobs["large"] = [submit(slurm, "sleep 3", "--account=physics", f"--ntasks={CORES}")]
    jobs["never"] = [
        submit(slurm, "sleep 60", "--account=bio", f"--ntasks={CORES}", "--nice=10000") for _ in range(NEVER)
    ]
    jobs["behind"] = [submit(slurm, "sleep 1", "--account=bio", "--ntasks=2", "--nice=20000") for _ in range(BEHIND)]
    slurm.command("scancel", *map(str, jobs["never"]))
    jobs["suspended"] = [submit(slurm, until(resumed), "--account=bio", "--ntasks=1") for _ in range(SUSPENDED)]
    submitted.touch()
    wait_until(lambda: running(slurm, jobs["suspended"][0]), "the job to be suspended to run")
    slurm.command("scontrol", "suspend", str(jobs["suspended"][0]))
    time.sleep(3)
    slurm.command("scontrol", "resume", str(jobs["suspended"][0]))
    resumed.touch()
    wait_until(lambda: not squeue(slurm), "the jobs to end")
    slurm.command("scontrol", "update", "nodename=n4", "state=drain", "reason=test")
    time.sleep(2)
    slurm.command("scontrol", "update", "nodename=n4", "state=resume")
    return jobs


def squeue(slurm: LocalSlurm) -> str:
    return slurm.command("squeue", "-h", "-o", "%i").stdout.strip()


def running(slurm: LocalSlurm, job: int) -> bool:
    return slurm.command("squeue", "-h", "-t", "R", "-j", str(job), "-o", "%i", check=False).stdout.strip() != ""


def reported(slurm: LocalSlurm, begin: float) -> LogReport:
    now = time.time()
    records = asked_records(begin, now, asking_slurm(slurm.conf), now)
    down = [Down(start, min(end, now), cores) for start, end, cores in asked_down(begin, now, slurm.conf)]
    return log_report(records, MachineSize(CORES, "test"), 8, since=begin, until=now, down=down)


def test_starts_and_waits_are_those_of_slurmctlds_log(slurm: LocalSlurm) -> None:
    begin = time.time() - 1
    jobs = day(slurm)
    wait_until(lambda: reported(slurm, begin).frame["end"].null_count() == 0, "slurmdbd to know all ends")
    report = reported(slurm, begin)
    frame = report.frame
    states = dict(frame.group_by("state").len().iter_rows())
    completed = SMALL + TASKS + CHAINED + LARGE + BEHIND + SUSPENDED
    assert states == {"COMPLETED": completed, "FAILED": FAILED, "CANCELLED": NEVER}
    # To the second, for slurmdbd has whole ones.
    logged = {}
    for line in (slurm.directory / "log" / "slurmctld.log").read_text().splitlines():
        if found := STARTED.match(line):
            logged[found[2] or found[3]] = datetime.fromisoformat(found[1]).timestamp()
    starts = dict(frame.filter(pl.col("start").is_not_null()).select("job_id", "start").iter_rows())
    assert starts.keys() == logged.keys()
    assert all(abs(start - logged[job]) <= 1 for job, start in starts.items())
    # Of a chain each waits from its submission, but is eligible only when the one before has ended.
    chain = report.jobs.filter(pl.col("job_id").is_in([str(job) for job in jobs["chain"][1:]]))
    assert (chain["eligible_wait"] < chain["wait"]).all()
    ends = dict(frame.select("job_id", "end").iter_rows())
    for before, job in zip(jobs["chain"], jobs["chain"][1:], strict=False):
        eligible = dict(report.jobs.select("job_id", "first_eligible").iter_rows())[str(job)]
        assert eligible >= ends[str(before)]
    use = report.use
    held = slurm.command("sacct", "-a", "-X", "-P", "-n", "-D", "-S", "now-1hour", "--format=CPUTimeRAW").stdout
    # Slurm's figure is without the time in which a job was suspended, of one core; ours is with it.
    paused = report.jobs.filter(pl.col("job_id") == str(jobs["suspended"][0])).row(0, named=True)
    suspended = paused["end"] - paused["start"] - paused["run"]
    assert suspended >= 2
    assert use.core_seconds(use.used) == pytest.approx(sum(map(int, held.split())) + suspended, rel=0.005)
    heaps = {name: use.core_seconds(cores) for name, cores in use.heaps.items()}
    assert sum(heaps.values()) == pytest.approx(use.core_seconds(use.idle))
    assert heaps["kept_for_large"] > 0, "small jobs stood behind the one that waited for all CPUs"
    assert use.core_seconds(use.down) >= 4
