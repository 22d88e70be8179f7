"""While all jobs are polled, which may take seconds, urgent jobs do not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.marks import SUBMIT_MARK
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.config.load import parse_config
from omfs_daemon.daemon.poll_schedule import LOOK_FOR, PollKind
from omfs_daemon.daemon.process import Service
from omfs_daemon.errors import GatewayError
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
    """A service on nodes of four CPUs, and virtual time."""

    def __init__(self, directory: Path, nodes: int = 1) -> None:
        self.now = 1_000_000.0
        path = directory / "omfs.toml"
        path.write_text(TEXT.format(directory=directory))
        machine = [Node(f"n{number}", 4, 8000 << 20) for number in range(1, nodes + 1)]
        parts = [Partition(name, frozenset(node.name for node in machine)) for name in ("main", "urgent")]
        self.slurm = FakeSlurm(lambda: self.now, machine, parts)
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


def test_an_urgent_job_that_slurm_lists_long_after_the_wake_up_is_served_meanwhile(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit plug-in runs before slurmctld waits for its locks, which may take seconds."""
    victim = stand.submit("bio", "main")
    stand.run_until(lambda: stand.is_in(victim, JobState.RUNNING))
    stand.service.once()
    asked, find = list[int | str](), stand.gateway.find

    def noted(job: int | str) -> Job | None:
        asked.append(job)
        return find(job)

    def during() -> None:
        stand.wake()
        wait_until(lambda: len(asked) >= 4, "four polls for a job that is not there")
        stand.submit("alarm", "urgent")
        wait_until(lambda: not stand.is_in(victim, JobState.RUNNING), "its victim to be preempted meanwhile")

    monkeypatch.setattr(stand.gateway, "find", noted)
    stand.gateway.during = during
    report = stand.service.once()
    assert report.verdict is not None and len(report.verdict.preemptions) == 1


@pytest.mark.parametrize("other", ["new", "running", "none"])
def test_whatever_a_full_poll_shows_that_a_wake_up_was_for_more_is_looked_for(tmp_path: Path, other: str) -> None:
    """Of two urgent jobs that wake it together, one may be listed after the poll."""
    stand = Stand(tmp_path, nodes=2)
    stand.service.once()
    if other != "none":
        first = stand.submit("alarm", "urgent")
    if other == "running":
        stand.now += 1
        assert stand.is_in(first, JobState.RUNNING)
    loop = stand.service._loop
    stand.wake()
    loop.events.begin_poll(PollKind.FULL)
    loop.once()
    assert loop._poll_schedule.again_at < inf
    assert loop._poll_schedule._look_until > monotonic() + LOOK_FOR / 2
    stand.service.close()


def test_what_was_polled_counts_for_nothing_if_an_urgent_job_was_released_meanwhile(tmp_path: Path) -> None:
    """It would be released again, which the gate refuses."""
    stand = Stand(tmp_path, nodes=2)
    victim = stand.submit("bio", "main")
    stand.run_until(lambda: stand.is_in(victim, JobState.RUNNING))
    stand.service.once()
    urgent: list[int] = []

    def during() -> None:
        request = JobRequest(4, partitions=("urgent",), max_nodes=1)
        job = Submission(
            request, user="alarm", account="alarm", hold=Hold.USER, admin_comment=SUBMIT_MARK, run_time=100
        )
        urgent.append(stand.slurm.submit(job))
        stand.wake()
        wait_until(lambda: stand.slurm.records[urgent[0]].hold is Hold.NONE, "it to be released meanwhile")

    stand.gateway.during = during
    report = stand.service.once()
    assert report.plan is not None and [start.ref for start in report.plan.starts] == [str(urgent[0])]
    stand.run_until(lambda: stand.is_in(urgent[0], JobState.RUNNING))
    assert stand.is_in(victim, JobState.RUNNING)
    stand.service.close()


def test_no_number_of_urgent_jobs_keeps_a_preemption_from_going_on(tmp_path: Path) -> None:
    """Another urgent job comes during each poll of all jobs."""
    stand = Stand(tmp_path, nodes=6)
    victims = [stand.submit("bio", "main") for _ in range(6)]
    stand.run_until(lambda: all(stand.is_in(victim, JobState.RUNNING) for victim in victims))
    stand.service.once()
    urgent, aside = list[int](), list[bool]()

    def running() -> int:
        return sum(stand.is_in(victim, JobState.RUNNING) for victim in victims)

    def during() -> None:
        urgent.append(stand.submit("alarm", "urgent"))
        stand.wake()
        aside.append(current_thread() is not main_thread())
        if aside[-1]:
            before = running()
            wait_until(lambda: running() < before, "a victim to be preempted meanwhile")

    for _ in range(4):
        stand.gateway.during = during
        stand.service.once()
        stand.now += 0.5
    assert aside == [True, False, True, False], "every other poll is one that nothing makes useless"
    stand.run_until(lambda: all(stand.is_in(job, JobState.RUNNING) for job in urgent))
    stand.service.close()


def test_what_was_polled_counts_for_nothing_if_an_urgent_poll_failed_meanwhile(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have given orders before, and its job may be newer than what was polled."""
    victim = stand.submit("bio", "main")
    stand.run_until(lambda: stand.is_in(victim, JobState.RUNNING))
    stand.service.once()
    urgent, failed, find = list[int](), list[int | str](), stand.gateway.find

    def fails(job: int | str) -> Job | None:
        if urgent and job == victim and not failed:
            failed.append(job)
            raise GatewayError("timed out")
        return find(job)

    def during() -> None:
        urgent.append(stand.submit("alarm", "urgent"))
        stand.wake()
        wait_until(lambda: failed, "the question about the victim to fail")

    monkeypatch.setattr(stand.gateway, "find", fails)
    stand.gateway.during = during
    assert stand.service.once().error == "timed out"
    assert stand.service._loop._poll_schedule.was_in_vain
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


def test_a_full_poll_that_failed_is_still_needed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.service.once()
    schedule, now = stand.service._loop._poll_schedule, monotonic()
    schedule.polled(PollKind.URGENT, now, now, calls=0, rate=1.0, needs_full=True)

    def fails() -> list[Job]:
        raise GatewayError("timed out")

    with monkeypatch.context() as patched:
        patched.setattr(stand.gateway, "jobs", fails)
        assert stand.service.once().error is not None
    assert schedule._needs_full
    assert stand.service.once().error is None
    assert not schedule._needs_full
