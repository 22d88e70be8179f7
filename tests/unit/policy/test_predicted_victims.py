"""Victims by predicted remaining times: the order, who is left to run, and what stays with time limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import MethodSpeed
from omfs_daemon.cluster.snapshot import PreemptionHistory, RemainingTime
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.validator import RefusalReason, validate
from tests.support.policy_builders import (
    FRESH,
    NOW,
    nodes,
    rules,
    running,
    snapshot,
    urgent,
    victims_by_preemptor,
)
from tests.unit.policy.test_realtime_jobs import realtime, site_rules

HISTORY = PreemptionHistory()


def planned(jobs: list[Job], by: Rules, remaining: dict[int, RemainingTime], machine: int = 2) -> Plan:
    """The plan, which the validator accepts as it is."""
    seen = replace(snapshot(nodes(machine), jobs), remaining=remaining)
    plan = make_plan(seen, HISTORY, by, NOW)
    verdict = validate(plan, seen, HISTORY, by, NOW, FRESH)
    assert (verdict.preemptions, verdict.refused) == (plan.preemptions, ())
    return plan


def victim(number: int, on: str, **fields: Any) -> Job:
    return running(number, "physics", 4, on, **{"run_time": 100.0, "time_limit": 1000.0, **fields})


def test_the_one_that_is_predicted_to_run_longest_goes_first() -> None:
    by = rules(bio=50, physics=50)
    jobs = [victim(1, "n0", time_limit=2000.0), victim(2, "n1"), urgent(9, "bio", 4)]
    assert victims_by_preemptor(planned(jobs, by, {})) == {"9": {"1"}}, "by its limit"
    soon = {1: RemainingTime(30.0, 60.0)}
    assert victims_by_preemptor(planned(jobs, by, soon)) == {"9": {"2"}}, "900 s of its limit against 30 s"
    never_beyond_limits = {1: RemainingTime(1e6, 1e6), 2: RemainingTime(1e7, 1e7)}
    assert victims_by_preemptor(planned(jobs, by, never_beyond_limits)) == {"9": {"1"}}


def test_a_job_is_left_to_run_only_if_nine_in_ten_end_before_the_preemption_would() -> None:
    by = replace(rules(bio=50, physics=50), speeds={"requeue": MethodSpeed(preempt_seconds=60.0)})
    jobs = [victim(1, "n0"), urgent(9, "bio", 4)]
    assert victims_by_preemptor(planned(jobs, by, {1: RemainingTime(10.0, 61.0)}, 1)) == {"9": {"1"}}
    assert not planned(jobs, by, {1: RemainingTime(10.0, 60.0)}, 1).preemptions


def test_the_quick_one_that_will_have_ended_is_not_preempted() -> None:
    by = replace(rules(bio=50, physics=50), speeds={"suspend": MethodSpeed(preempt_seconds=60.0)})
    wide = urgent(9, "bio", 8, request=replace(urgent(9, "bio", 8).request, nodes=2, max_nodes=2))
    jobs = [victim(1, "n0", comment="omfs:method=suspend"), victim(2, "n1"), wide]
    (one,) = planned(jobs, by, {2: RemainingTime(10.0, 50.0)}).preemptions
    assert {victim.ref: victim.method for victim in one.victims} == {"1": "suspend", "2": "ends"}
    (one,) = planned(jobs, by, {2: RemainingTime(10.0, 70.0)}).preemptions
    assert {victim.ref: victim.method for victim in one.victims} == {"1": "suspend", "2": "requeue"}


def test_the_validator_lets_nobody_run_on_whose_end_is_not_foreseen() -> None:
    by = replace(rules(bio=50, physics=50), speeds={"suspend": MethodSpeed(preempt_seconds=60.0)})
    wide = urgent(9, "bio", 8, request=replace(urgent(9, "bio", 8).request, nodes=2, max_nodes=2))
    jobs = [victim(1, "n0", comment="omfs:method=suspend"), victim(2, "n1"), wide]
    plan = planned(jobs, by, {2: RemainingTime(10.0, 50.0)})
    verdict = validate(plan, snapshot(nodes(2), jobs), HISTORY, by, NOW, FRESH)
    assert [refused.reason for refused in verdict.refused] == [RefusalReason.NOT_POSSIBLE]


def test_the_cost_for_a_real_time_job_counts_with_predictions_but_its_threshold_with_limits() -> None:
    by = site_rules(RealtimeTerms(victim_max=(1.5,) * 4), bio=50, physics=50)

    def regular(number: int, on: str, waited: float) -> Job:
        since = {"submit": NOW - 1000.0 - waited, "start": NOW - 1000.0, "run_time": 1000.0, "time_limit": 4000.0}
        return running(number, "physics", 4, on, comment="omfs:method=suspend", **since)

    due = realtime(9, waited=500.0)
    jobs = [regular(1, "n0", 0.0), regular(2, "n1", 100.0), due]
    assert victims_by_preemptor(planned(jobs, by, {})) == {"9": {"1"}}, "the other has waited longer"
    nearly_done = {1: RemainingTime(60.0, 3000.0)}
    assert victims_by_preemptor(planned(jobs, by, nearly_done)) == {"9": {"2"}}, "a nearly done one costs five times"
    # 500 s of waiting are a slowdown of 1.125 of its limit, but of 1.5 and more of what is predicted.
    late = {1: RemainingTime(1.0, 1.0), 2: RemainingTime(1.0, 1.0)}
    alone = [regular(1, "n0", 500.0), due]
    assert victims_by_preemptor(planned(alone, by, late, 1)) == {"9": {"1"}}
