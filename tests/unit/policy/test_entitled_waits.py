"""Which jobs wait for what their account owns."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.entitled_waits import entitled_waits
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import Rules
from tests.support.policy_builders import NOW, array, nodes, rules, running, snapshot, waiting

HALVES = rules(bio=50, physics=50)
NESTED = rules(science=50, science__bio=50, science__physics=50, industry=50)
BOTH = ("n0", "n1")


def waits(*jobs: Job, of: Rules = HALVES, served: Mapping[str, str] | None = None) -> dict[str, set[str]]:
    seen = snapshot(nodes(2), jobs)
    return entitled_waits(make_plan(seen, PreemptionHistory(), of, NOW), seen, of.tree, served or {})


def test_a_job_for_which_nobody_may_be_preempted_waits_for_its_accounts_entitlement() -> None:
    assert waits(running(1, "physics", 8, BOTH, non_preemptible=True), waiting(2, "bio", 4)) == {"bio": {"2"}}


def test_jobs_beyond_the_entitlement_do_not_count() -> None:
    full = [running(1, "physics", 4), running(2, "bio", 4, "n1")]
    assert waits(*full, waiting(3, "bio", 4), waiting(4, "physics", 8)) == {}


def test_those_that_are_being_served_count_until_they_run() -> None:
    assert waits(running(1, "physics", 8, BOTH), waiting(2, "bio", 4)) == {"bio": {"2"}}
    assert waits(running(1, "physics", 8, BOTH), served={"9": "bio"}) == {"bio": {"9"}}
    assert waits(running(1, "physics", 4), running(9, "bio", 4, "n1"), served={"9": "bio"}) == {}


def test_a_parent_below_its_entitlement_waits_too() -> None:
    taken = running(1, "industry", 8, BOTH, non_preemptible=True)
    assert waits(taken, waiting(2, "bio", 2), of=NESTED) == {"bio": {"2"}, "science": {"2"}}


@pytest.mark.parametrize("reason", ["PartitionDown", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail, Reserved"])
def test_a_job_that_waits_for_more_than_nodes_does_not_count(reason: str) -> None:
    assert waits(running(1, "physics", 8, BOTH, non_preemptible=True), waiting(2, "bio", 4, reason=reason)) == {}


def test_of_an_array_each_task_counts_once() -> None:
    taken = running(1, "physics", 8, BOTH, non_preemptible=True)
    assert len(waits(taken, array(2, 3, "bio", 4))["bio"]) == 1
    assert waits(taken, array(2, 3, "bio", 4, reason="Dependency")) == {}
