"""What a test can choose about omfs-run in the fake's jobs; that Slurm does the same is in tests/contract/."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState
from omfs_daemon.cluster.run_report import RunState, run_report
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission
from omfs_daemon.testing.fake_slurm.omfs_run_behavior import OmfsRunBehavior, OnRestart, OnUsr1, with_run_comment
from tests.support.comments import RELEASED


class World:
    """One job under omfs-run, a hundred seconds of work long."""

    def __init__(self, launched: OmfsRunBehavior) -> None:
        self.now = 1000.0
        self.slurm = FakeSlurm.uniform(lambda: self.now)
        self.gateway = FakeGateway(self.slurm)
        self.id = self.slurm.submit(Submission(JobRequest(1), run_time=100, comment="mine", launched=launched))

    def job(self) -> Job:
        found = self.gateway.find(self.id)
        assert found is not None
        return found

    def says(self) -> RunState | None:
        said = run_report(self.job())
        return said.state if said else None

    def usr1(self) -> None:
        assert self.gateway.signal(str(self.id), "USR1", batch_only=True) == []

    def again(self) -> None:
        """Stop it after ten seconds, and let it run once more."""
        self.now += 10
        self.usr1()
        self.now += 2
        assert self.says() is RunState.STOPPED
        self.gateway.release([str(self.id)], RELEASED)
        self.now += 20


def test_it_is_ready_when_it_reports_so() -> None:
    world = World(OmfsRunBehavior(ready_after=5))
    assert world.says() is None
    world.now += 5
    assert world.says() is RunState.READY
    assert world.job().comment == "mine omfs:run=0:ready:method=dmtcp"


def test_asked_before_it_is_ready_the_job_dies() -> None:
    world = World(OmfsRunBehavior(ready_after=5))
    world.usr1()
    assert world.slurm.history[world.id].outcome == "FAILED"


def test_no_work_is_lost_by_a_checkpoint_and_little_by_a_plain_requeue_after_it() -> None:
    world = World(OmfsRunBehavior())
    world.again()
    said = run_report(world.job())
    assert said is not None and (said.state, said.restarts) == (RunState.READY, 1)
    assert world.slurm.history[world.id].lost == 0
    world.gateway.requeue([str(world.id)])
    assert world.slurm.history[world.id].lost == pytest.approx(world.now - world.slurm.history[world.id].starts[1])


def test_asked_twice_it_makes_one_checkpoint() -> None:
    world = World(OmfsRunBehavior(seconds=3))
    world.now += 1
    for _ in range(3):
        world.usr1()
        world.now += 0.5
    assert world.says() is RunState.STOPPING
    world.now += 5
    assert (world.says(), world.job().restarts) == (RunState.STOPPED, 1)


def test_what_fails_once_may_succeed_the_next_time() -> None:
    world = World(OmfsRunBehavior(on_usr1=OnUsr1.FAIL, why="not_writable"))
    world.now += 1
    world.usr1()
    world.now += 1
    said = run_report(world.job())
    assert said is not None and (said.state, said.why) == (RunState.FAILED, "not_writable")
    world.slurm.behave(world.id, OmfsRunBehavior())
    world.usr1()
    world.now += 1
    assert world.says() is RunState.STOPPED


def test_restarted_from_the_beginning_its_work_is_lost() -> None:
    world = World(OmfsRunBehavior(on_restart=OnRestart.FRESH))
    world.again()
    assert ":fresh=1" in world.job().comment
    assert world.slurm.history[world.id].lost == pytest.approx(10.5)


def test_what_cannot_be_restarted_is_held_again() -> None:
    world = World(OmfsRunBehavior(on_restart=OnRestart.HELD, why="not_verified"))
    world.again()
    job = world.job()
    assert (job.state, job.hold, job.restarts) == (JobState.PENDING, Hold.USER, 2)
    assert job.comment == "mine omfs:run=1:held:method=dmtcp:why=not_verified"


def test_a_job_suspended_in_mid_checkpoint_ends_it_when_it_is_resumed() -> None:
    world = World(OmfsRunBehavior(seconds=3))
    world.now += 1
    world.usr1()
    world.gateway.suspend([str(world.id)])
    world.now += 10
    assert world.says() is RunState.STOPPING
    world.gateway.resume([str(world.id)])
    world.now += 2
    assert world.says() is RunState.STOPPED


def test_a_job_that_ends_by_itself_meanwhile_has_ended() -> None:
    world = World(OmfsRunBehavior(seconds=30))
    world.now += 90
    world.usr1()
    world.now += 40
    assert world.slurm.history[world.id].outcome == "COMPLETED"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "omfs:run=2:ready:method=m"),
        ("a b", "a b omfs:run=2:ready:method=m"),
        ("a omfs:run=1:stopped:method=m b", "a omfs:run=2:ready:method=m b"),
        ("xomfs:run=1:ready", "xomfs:run=1:ready omfs:run=2:ready:method=m"),
    ],
)
def test_the_report_is_replaced_in_its_place(before: str, after: str) -> None:
    assert with_run_comment(before, 2, "ready", method="m") == after
