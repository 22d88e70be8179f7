"""Who holds a job, and who has released it, by what Slurm shows of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.holds import (
    highest_number,
    is_held,
    is_held_by_us,
    is_release_observed,
    is_release_unfinished,
    is_released_by_administrator,
    may_hold,
    ready_from,
)
from omfs_daemon.cluster.jobs import Hold, Job, JobRequest, JobState

FREE = Job(7, "7", "alice", 1000, "bio", JobState.PENDING, JobRequest(1), 0.0, priority=1)
ADMIN = {"hold": Hold.ADMIN, "reason": "JobHeldAdmin", "priority": 0}
USER = {"hold": Hold.USER, "reason": "JobHeldUser", "priority": 0}
REQUEUED = {"hold": Hold.USER, "reason": "job requeued in held state", "priority": 0}
STALE = {"hold": Hold.USER, "reason": "NonZeroExitCode", "priority": 0}
RUNS_HELD = {"state": JobState.RUNNING, "priority": 0}


def job(**fields: object) -> Job:
    return replace(FREE, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "ours"),
    [
        (job(**ADMIN, admin_comment="omfs:held:7 why | theirs"), True),
        (job(**ADMIN, admin_comment="omfs:held:7?omfs:rel:3"), True),
        (job(**STALE, admin_comment="omfs:held:7"), True),
        (job(**USER, admin_comment="omfs:held:7"), False),
        (job(**REQUEUED, admin_comment="omfs:held:7"), False),
        (job(**REQUEUED, admin_comment="omfs:held:0"), False),
        (job(**REQUEUED, special_exit=True, admin_comment="omfs:stopping:7"), True),
        (job(**USER, admin_comment="omfs:held:0"), True),
        (job(**USER, comment="words omfs:wait"), True),
        (job(**USER, comment="words omfs:wait", admin_comment="omfs:rel:4"), True),
        (job(**ADMIN, comment="words omfs:wait"), False),
        (job(**USER, comment="omfs:waiting"), False),
        (job(**USER, special_exit=True, admin_comment="omfs:stopping:7"), True),
        (job(**USER, special_exit=True, admin_comment="omfs:held:7"), True),
        (job(**USER, special_exit=True, admin_comment="omfs:rel:7"), False),
        (job(**USER, special_exit=True, comment="omfs:run=0:held:method=criu", admin_comment="omfs:stopping:7"), False),
        (job(**REQUEUED, comment="omfs:run=0:stopped:method=criu", admin_comment="omfs:stopping:7"), True),
        (job(**REQUEUED, comment="omfs:run=0:held:method=criu", admin_comment="omfs:stopping:7"), False),
        (job(**REQUEUED, comment="omfs:run=0:stopped:method=criu"), False),
        (job(**ADMIN, admin_comment="omfs:stopping:7"), True),
        (job(**USER, admin_comment="omfs:stopping:7"), False),
        (job(**ADMIN, admin_comment="omfs:rel:7"), False),
        (job(**ADMIN, admin_comment="adm:held"), False),
        (job(**ADMIN), False),
        (job(admin_comment="omfs:held:7"), False),
        (job(**RUNS_HELD, admin_comment="omfs:held:7"), True),
        (job(**RUNS_HELD), False),
        (job(state=JobState.RUNNING, admin_comment="omfs:held:7"), False),
        (job(state=JobState.SUSPENDED, priority=0, admin_comment="omfs:stopping:7"), False),
    ],
)
def test_whose_hold_it_is(seen: Job, ours: bool) -> None:
    assert is_held_by_us(seen) is ours
    assert is_held(seen) or not ours
    if seen.state is JobState.PENDING and is_held(seen):
        assert (ready_from(seen) < 0) is ours


@pytest.mark.parametrize(
    ("seen", "released"),
    [
        (job(admin_comment="omfs:held:7"), True),
        (job(admin_comment="adm:rel | theirs"), True),
        (job(admin_comment="omfs:rel:7"), False),
        (job(admin_comment="omfs:stopping:7"), False),
        (job(), False),
        (job(**ADMIN, admin_comment="omfs:held:7"), False),
        (job(state=JobState.RUNNING, admin_comment="omfs:held:7"), False),
    ],
)
def test_what_an_administrator_has_released_is_not_held_again(seen: Job, released: bool) -> None:
    assert is_released_by_administrator(seen) is released
    if released:
        assert not may_hold(seen)


@pytest.mark.parametrize(
    ("seen", "may"),
    [
        (FREE, True),
        (job(admin_comment="omfs:rel:7"), True),
        (job(**USER, admin_comment="omfs:held:0"), True),
        (job(**USER, special_exit=True, admin_comment="omfs:stopping:7"), True),
        (job(**ADMIN, admin_comment="omfs:held:7"), False),
        (job(**USER), False),
        (job(**ADMIN), False),
        (job(**USER, special_exit=True), False),
        (job(state=JobState.RUNNING), False),
    ],
)
def test_what_may_be_held_or_held_more_firmly(seen: Job, may: bool) -> None:
    assert may_hold(seen) is may


@pytest.mark.parametrize(
    ("seen", "unfinished", "observed"),
    [
        (job(**ADMIN, admin_comment="omfs:rel:7 | x"), True, False),
        (job(**USER, admin_comment="omfs:rel:7"), True, False),
        (job(**RUNS_HELD, admin_comment="omfs:rel:7"), True, False),
        (job(admin_comment="omfs:rel:7"), False, True),
        (job(hold=Hold.USER, reason="BadConstraints", priority=0, admin_comment="omfs:rel:7"), False, True),
        (job(**ADMIN, admin_comment="omfs:held:6"), False, False),
        (job(**ADMIN, admin_comment="omfs:held:8"), False, True),
        (job(**ADMIN, admin_comment="adm:held"), False, True),
    ],
)
def test_a_release_that_ended_after_its_mark(seen: Job, unfinished: bool, observed: bool) -> None:
    assert is_release_unfinished(seen, 7) is unfinished
    assert is_release_observed(seen, 7) is observed


def test_the_highest_number_in_slurm() -> None:
    comments = ("", "omfs:held:0", "JS1:x", "omfs:rel:12 | omfs:held:99", "adm:held")
    assert highest_number(job(admin_comment=comment) for comment in comments) == 12
    assert highest_number([]) == 0
