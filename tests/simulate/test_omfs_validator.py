"""What the simulator found in the validator."""

from __future__ import annotations

from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import validate
from tests.support.policy_builders import (
    FRESH,
    NOW,
    nodes,
    rules,
    running,
    snapshot,
    suspended,
    under_way,
    waiting,
)


def test_a_promise_does_not_take_the_cpus_of_a_resume() -> None:
    """Job 1 runs on again on one of two idle CPUs; so job 4, which wants two, is promised those that job 2 gives up.
    The validator must not take the promise for a start on both idle ones, and then refuse the resume."""
    jobs = [
        suspended(1, "maths", comment="omfs:method=suspend"), running(2, "physics", 2),
        waiting(3, "physics"), waiting(4, "bio", 2),
    ]  # fmt: skip
    history = PreemptionHistory(
        preempted={"1": PreemptedJob(NOW - 10, "suspend", "9")},
        under_way=(under_way("3", "physics", [("n0", 1)], "2"),),
    )
    site, by = snapshot(nodes(1), jobs), rules(bio=50, maths=25, physics=25)
    suggested = make_plan(site, history, by, NOW)
    assert [resume.ref for resume in suggested.resumes] == ["1"]
    assert [promise.ref for promise in suggested.promises] == ["4"]
    verdict = validate(suggested, site, history, by, NOW, FRESH)
    assert [resume.ref for resume in verdict.resumes] == ["1"]
    assert not verdict.refused
