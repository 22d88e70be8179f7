"""Two jobs that preempt each other by turns are left to run for a while, and operators are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from omfs_daemon.preemption.past_preemptions import PastPreemptions, set_apart
from omfs_daemon.preemption.state import JobPreempted
from tests.support.fake_site import Site


def taken(site: Site, job: int, times: int, preemptor: int) -> None:
    for _ in range(times):
        site.journal.write(JobPreempted(str(job), site.now, "requeue", str(preemptor)))


@pytest.mark.parametrize("times", [2, 3])
def test_only_urgent_jobs_preempt_them(times: int, tmp_path: Path) -> None:
    site = Site(tmp_path, hosts=1)
    first, second = (site.submit("bio", cpus=2, run_time=100_000.0) for _ in range(2))
    site.run(2)
    taken(site, first, 3, second)
    taken(site, second, times, first)
    physics = site.submit("physics", cpus=2, run_time=5.0)
    with capture_logs() as lines:
        site.run(4)
    errors = [line for line in lines if line["event"] == "jobs_set_apart"]
    assert len(site.slurm.history[physics].starts) == (1 if times == 2 else 0)
    assert [line["jobs"] for line in errors] == ([] if times == 2 else [[str(first), str(second)]])
    urgent = site.submit("physics", cpus=2, run_time=5.0, urgent=True)
    site.run_until(lambda: bool(site.slurm.history[urgent].starts), limit=10)


def test_it_ends_an_hour_after_the_last_time() -> None:
    past = {"1": PastPreemptions(), "2": PastPreemptions(), "3": PastPreemptions()}
    for at in (10.0, 20.0, 30.0):
        past["1"] = past["1"].and_now(at, "2")
        past["2"] = past["2"].and_now(at + 5, "1")
        past["3"] = past["3"].and_now(at, "2")
    assert set_apart(past) == {"1": 3635.0, "2": 3635.0}
    past["1"] = past["1"].and_now(3625.0, "2")
    assert past["1"] == PastPreemptions(4, ((30.0, "2"), (3625.0, "2")))
    assert set_apart(past) == {}
