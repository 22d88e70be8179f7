"""Whose a hold is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omfs_daemon.cluster.holds import WAIT_WORD
from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.snapshot import PreemptedJob, Snapshot
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.our_holds import is_held_by_others, is_ours, with_refs_of_now
from omfs_daemon.preemption.state import State
from tests.support.policy_builders import waiting

RELEASED = replace(waiting(9, cpus=4), hold=Hold.ADMIN, priority=0, reason="JobHeldAdmin", admin_comment="omfs:rel:5")


def test_a_job_that_is_held_after_its_release_was_observed_is_held_by_others() -> None:
    assert is_held_by_others(RELEASED, State())
    assert is_held_by_others(replace(RELEASED, hold=Hold.USER, reason="JobHeldUser"), State())
    assert not is_held_by_others(replace(RELEASED, hold=Hold.NONE, priority=7), State())


@pytest.mark.parametrize("reason", ["JobHeldAdmin", "job requeued in held state"])
def test_before_that_it_may_be_on_its_way(reason: str) -> None:
    """Unless Slurm's reason tells that it has been requeued since."""
    job, state = replace(RELEASED, reason=reason), State(releasing={"9": 5})
    assert is_ours(job, state) == (reason == "JobHeldAdmin")
    assert is_held_by_others(job, state) != is_ours(job, state)
    assert is_held_by_others(job, State(releasing={"9": 6})), "another release than that of its mark"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"hold": Hold.USER, "reason": "JobHeldUser", "comment": WAIT_WORD}, State()),
        ({"admin_comment": "omfs:held:6"}, State()),
        ({"admin_comment": "site's"}, State(held={"9": 4})),
        (
            {"hold": Hold.USER, "reason": "JobHeldUser", "special_exit": True},
            State(preempted={"9": PreemptedJob(1.0, "application", "8")}),
        ),
        (
            {"hold": Hold.USER, "reason": "job requeued in held state", "comment": "omfs:run=0:stopped:method=dmtcp"},
            State(preempted={"9": PreemptedJob(1.0, "dmtcp", "8")}),
        ),
    ],
    ids=[
        "by the gate after a change of its owner",
        "by us",
        "by us, without a mark",
        "after its checkpoint",
        "after its checkpoint by omfs-run",
    ],
)
def test_a_hold_of_ours_is_none_of_others(changes: dict[str, Any], state: State) -> None:
    assert not is_held_by_others(replace(RELEASED, **changes), state)


def test_tasks_that_are_released_are_known_when_slurm_divides_their_array() -> None:
    job: Job = replace(RELEASED, ref="9_[5-6]", array_id=9, task_ids=(5, 6), state=JobState.PENDING)
    state = with_refs_of_now(State(releasing={"9_[4-6]": 5}), Observation(Snapshot(1.0, {9: job}, {}, {})))
    assert not is_held_by_others(job, state)
