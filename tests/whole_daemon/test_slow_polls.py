"""While all jobs are polled, which may take seconds, urgent jobs do not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omfs_daemon.cluster.jobs import Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.process import Service
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from tests.support.waiting import wait_until

TEXT = """
[daemon]
state_dir = "{directory}/state"
run_dir = "{directory}/run"
[policy]
quantum_seconds = 0
[entitlements.bio]
percent = 100
[[class]]
name = "urgent"
partition = ["urgent"]
urgent = true
[[class]]
name = "regular"
methods = ["requeue"]
"""


class SlowGateway(FakeGateway):
    """``during`` is called before a list of jobs, which is as of before, is returned: once."""

    during: Callable[[], None] | None = None

    def jobs(self) -> list[Job]:
        found, during = super().jobs(), self.during
        self.during = None
        if during is not None:
            during()
        return found


class Stand:
    """A service on one node, and virtual time."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_000_000.0
        path = directory / "omfs.toml"
        path.write_text(TEXT.format(directory=directory))
        node = Node("n1", 4, 8000 << 20)
        parts = [Partition(name, frozenset([node.name])) for name in ("main", "urgent")]
        self.slurm = FakeSlurm(lambda: self.now, [node], parts)
        self.gateway = SlowGateway(self.slurm)
        self.service = Service(parse_config(path.read_text(), str(path)), path, self.gateway, lambda: self.now)

    def submit(self, account: str, partition: str) -> int:
        request = JobRequest(4, partitions=(partition,), max_nodes=1)
        comment = "omfs:method=requeue" if partition == "main" else ""
        job = Submission(request, user=account, account=account, run_time=100, comment=comment)
        return self.slurm.submit(job)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(200):
            if condition():
                return
            self.service.once()
            self.now += 0.5
        raise AssertionError("not in time")

    def is_in(self, job: int, state: JobState) -> bool:
        return self.slurm.records[job].state is state

    def wake(self) -> None:
        self.service._loop.events.touch()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    yield found
    found.service.close()


def test_an_urgent_job_is_served_while_all_jobs_are_polled(stand: Stand) -> None:
    victim = stand.submit("bio", "main")
    stand.run_until(lambda: stand.is_in(victim, JobState.RUNNING))
    stand.service.once()
    urgent: list[int] = []

    def during() -> None:
        urgent.append(stand.submit("alarm", "urgent"))
        stand.wake()
        wait_until(lambda: not stand.is_in(victim, JobState.RUNNING), "its victim to be preempted meanwhile")

    stand.gateway.during = during
    report = stand.service.once()
    assert report.verdict is not None and [one.preemptor for one in report.verdict.preemptions] == [str(urgent[0])]
    stand.run_until(lambda: stand.is_in(urgent[0], JobState.RUNNING))


def test_what_was_polled_counts_if_nothing_was_preempted_meanwhile(stand: Stand) -> None:
    running = stand.submit("bio", "main")
    stand.run_until(lambda: stand.is_in(running, JobState.RUNNING))
    stand.service.once()
    asked: list[int] = []
    find = stand.gateway.find

    def noting(job: int | str) -> Job | None:
        asked.append(int(job))
        return find(job)

    stand.gateway.find = noting  # type: ignore[method-assign]

    def during() -> None:
        new = stand.submit("bio", "main")
        stand.wake()
        wait_until(lambda: new in asked, "the new job to be asked for")

    stand.gateway.during = during
    report = stand.service.once()
    assert report.error is None and report.plan is not None and report.snapshot is not None
    assert set(report.snapshot.jobs) == {running}
