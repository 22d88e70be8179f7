"""What the simulator found in the safety gate."""

from __future__ import annotations

from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import Stopped
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.planner import plan
from tests.unit.policy.policy_builders import FRESH
from tests.unit.policy.policy_builders import NOW
from tests.unit.policy.policy_builders import commitment
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import rules
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import snapshot
from tests.unit.policy.policy_builders import suspended
from tests.unit.policy.policy_builders import waiting


def test_a_promise_does_not_take_the_cpus_of_a_resume() -> None:
    """Job 1 runs on again on one of two idle CPUs; so job 4, which wants two, is promised those that job 2 gives up.
    The gate must not take the promise for a start on both idle ones, and then refuse the resume."""
    jobs = [
        suspended(1, "maths", comment="omfs:method=suspend"), running(2, "physics", 2),
        waiting(3, "physics"), waiting(4, "bio", 2),
    ]  # fmt: skip
    ledger = Ledger(
        stopped={"1": Stopped(NOW - 10, "suspend", "9")}, commitments=(commitment("3", "physics", [("n0", 1)], "2"),)
    )
    site, by = snapshot(nodes(1), jobs), rules(bio=50, maths=25, physics=25)
    suggested = plan(site, ledger, by, NOW)
    assert [resume.ref for resume in suggested.resumes] == ["1"]
    assert [promise.ref for promise in suggested.promises] == ["4"]
    verdict = judge(suggested, site, ledger, by, NOW, FRESH)
    assert [resume.ref for resume in verdict.resumes] == ["1"]
    assert not verdict.refused
