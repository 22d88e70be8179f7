"""Which jobs may stand still because of a daemon that has died."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.snapshot import PreemptedJob, Snapshot
from omfs_daemon.preemption.follow_up import found_in_slurm
from omfs_daemon.preemption.left_behind import may_stand_still, with_touched_alone
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import Preemption, Preemptor, Step, VictimState
from omfs_daemon.preemption.state import State
from omfs_daemon.preemption.state_fold import state_after

PREEMPTOR = Preemptor("9", "alarm", "ann", True, False, 0.0, (Allocation("n1", 4, 0),), nice=-5)
METHODS = ("requeue", "dmtcp", "ends", "suspend", "pageout", "of_the_site")


def under_way(step: Step) -> State:
    victims = tuple(VictimState(method, "bio", "bob", method, 4, 50.0) for method in METHODS)
    return State(preemptions={1: Preemption(1, step, 90.0, 90.0, "urgent", PREEMPTOR, victims)}, sequence=5)


@pytest.mark.parametrize("step", [Step.STOPPING, Step.STARTING])
def test_victims_that_stay_on_their_nodes_may_stand_still(step: Step) -> None:
    found = may_stand_still(with_touched_alone(under_way(step)))
    assert {ref: one.method for ref, one in found.items()} == {
        method: method for method in ("suspend", "pageout", "of_the_site")
    }


def test_no_victim_is_touched_before_it_is_proven_that_the_preemptor_would_start() -> None:
    assert may_stand_still(with_touched_alone(under_way(Step.PROVING))) == {}


def test_a_job_that_was_requeued_before_and_is_suspended_now_may_stand_still() -> None:
    preempted = {method: PreemptedJob(10.0, "requeue", "8") for method in ("requeue", "suspend")}
    found = may_stand_still(with_touched_alone(replace(under_way(Step.STOPPING), preempted=preempted)))
    assert found["suspend"].method == "suspend"
    assert "requeue" not in found


@pytest.mark.parametrize(
    ("state", "mark", "is_left"),
    [
        (JobState.SUSPENDED, "omfs:rel:6", True),
        (JobState.SUSPENDED, "omfs:rel:5", False),
        (JobState.SUSPENDED, "omfs:stopping:6", False),
        (JobState.SUSPENDED, "adm:held", False),
        (JobState.SUSPENDED, "", False),
        (JobState.RUNNING, "omfs:rel:6", False),
    ],
)
def test_a_suspended_job_that_the_failsafe_has_let_go_is_not_the_daemons(
    state: JobState, mark: str, is_left: bool
) -> None:
    job = Job(7, "suspend", "bob", 1, "bio", state, JobRequest(1), 0.0, start=50.0, admin_comment=mark)
    before = replace(under_way(Step.STOPPING), preempted={"suspend": PreemptedJob(80.0, "suspend", "9")})
    records = found_in_slurm(before, Observation(Snapshot(100.0, {7: job}, {}, {})), 100.0, installed())
    after = state_after(before, records)
    victims = {victim.ref for victim in after.preemptions[1].victims}
    assert ("suspend" not in after.preempted, "suspend" not in victims) == (is_left, is_left)
    assert victims | {"suspend"} == set(METHODS)
