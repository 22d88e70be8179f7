"""The fake's model of what job_submit.lua does about marks."""

from __future__ import annotations

import pytest

from omfs_daemon.cluster.jobs import Hold, JobRequest
from omfs_daemon.testing.fake_slurm.controller import FakeSlurm
from omfs_daemon.testing.fake_slurm.fake_gateway import FakeGateway
from omfs_daemon.testing.fake_slurm.fake_jobs import Submission

FULL = Submission(JobRequest(16, nodes=4))


class Waiting:
    """A job that waits on a full machine."""

    def __init__(self, admin_comment: str = "", hold: Hold = Hold.NONE) -> None:
        self.slurm = FakeSlurm.uniform(lambda: 0.0)
        self.slurm.plugin = True
        self.gateway = FakeGateway(self.slurm)
        self.slurm.submit(FULL)
        self.id = self.slurm.submit(Submission(JobRequest(1), admin_comment=admin_comment, hold=hold))

    def hold(self, comment: str) -> bool:
        return self.gateway.hold([str(self.id)], comment) == []

    def release(self, comment: str) -> bool:
        return self.gateway.release([str(self.id)], comment) == []

    @property
    def shown(self) -> tuple[str, Hold]:
        job = self.gateway.find(self.id)
        assert job is not None
        return job.admin_comment, job.hold


def test_orders_that_expect_what_is_stored_are_carried_out() -> None:
    job = Waiting("theirs")
    assert job.hold("omfs:held:3? why | theirs")
    assert job.shown == ("omfs:held:3 why | theirs", Hold.ADMIN)
    assert job.hold("omfs:held:4?omfs:held:3")
    assert job.release("omfs:rel:5?omfs:held:4")
    assert job.shown == ("omfs:rel:5", Hold.NONE)


@pytest.mark.parametrize("comment", ["omfs:held:4?omfs:held:2", "omfs:held:4?", "omfs:held:4", "adm:rel"])
def test_others_are_refused_and_change_nothing(comment: str) -> None:
    job = Waiting("omfs:held:3", Hold.ADMIN)
    assert not job.hold(comment)
    assert not job.release(comment)
    assert job.shown == ("omfs:held:3", Hold.ADMIN)


def test_a_hold_over_somebody_elses_is_refused() -> None:
    job = Waiting(hold=Hold.USER)
    assert not job.hold("omfs:held:4?")
    assert job.shown == ("", Hold.USER)


def test_what_administrators_do_is_recorded_in_a_mark() -> None:
    job = Waiting("omfs:held:3 why | theirs", Hold.ADMIN)
    job.slurm.admin_release(job.id)
    assert job.shown == ("adm:rel | theirs", Hold.NONE)
    job.slurm.admin_hold(job.id)
    assert job.shown == ("adm:held | theirs", Hold.ADMIN)
    assert not job.release("omfs:rel:4?omfs:held:3"), "decided before"
    job.slurm.admin_release(job.id)
    assert job.hold("omfs:held:5?adm:rel")


def test_a_job_without_a_mark_is_left_as_it_is() -> None:
    job = Waiting("theirs")
    job.slurm.admin_hold(job.id)
    assert job.shown == ("theirs", Hold.ADMIN)
    job = Waiting("omfs:rel:3 x | theirs")
    job.slurm.admin_release(job.id)
    assert job.shown == ("omfs:rel:3 x | theirs", Hold.NONE)


def test_its_owner_cannot_change_our_hold() -> None:
    job = Waiting("omfs:held:0", Hold.USER)
    assert not job.slurm.user_release(job.id)
    assert not job.slurm.user_hold(job.id)
