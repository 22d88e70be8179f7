"""Who is spared: jobs whose time is up soon, and victims of a preemption in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.preempt_methods import ENDS, MethodSpeed
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.plan import Plan, PlannedPreemption, Reason
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.policy.validator import Conditions, RefusalReason, Verdict, validate
from tests.support.policy_builders import NOW, nodes, request, rules, running, snapshot
from tests.support.policy_builders import urgent as urgent_job

SLOW = replace(
    rules(bio=50), speeds={"suspend": MethodSpeed(preempt_seconds=30.0), "requeue": MethodSpeed(preempt_seconds=0.1)}
)
QUICK = rules(bio=50)


def victim(number: int, method: str = "requeue", remaining: float = 1000.0) -> Job:
    return running(
        number, "bio", cpus=4, on=f"n{number - 1}", comment=f"omfs:method={method}", run_time=500.0,
        time_limit=500.0 + remaining,
    )  # fmt: skip


def urgent(count: int, number: int = 90) -> Job:
    return urgent_job(number, "alarm", request=request(4 * count, nodes=count))


def decide(jobs: list[Job], by: Rules = SLOW, history: PreemptionHistory | None = None) -> tuple[Plan, Verdict]:
    history = history or PreemptionHistory()
    seen = snapshot(nodes(3, 4), jobs)
    plan = make_plan(seen, history, by, NOW)
    return plan, validate(plan, seen, history, by, NOW, Conditions(max_age=30))


def methods(verdict: Verdict) -> dict[str, str]:
    (planned,) = verdict.preemptions
    return {victim.ref: victim.method for victim in planned.victims}


@pytest.mark.parametrize(("remaining", "method"), [(29.0, "ends"), (31.0, "requeue"), (0.5, "ends"), (0.0, "requeue")])
def test_a_job_whose_time_is_up_before_the_slowest_lets_go_is_left_to_run(remaining: float, method: str) -> None:
    _, verdict = decide([victim(1, "suspend"), victim(2, remaining=remaining), victim(3), urgent(3)])
    assert verdict.refused == ()
    assert methods(verdict) == {"1": "suspend", "2": method, "3": "requeue"}


def test_without_slow_victims_nobody_is_waited_for() -> None:
    jobs = [victim(number, remaining=5.0) for number in (1, 2, 3)]
    assert set(methods(decide([*jobs, urgent(3)])[1]).values()) == {"requeue"}
    assert set(methods(decide([victim(1, "suspend"), *jobs[1:], urgent(3)], QUICK)[1]).values()) == {
        "requeue", "suspend",
    }  # fmt: skip


def test_simulations_of_the_published_rules_preempt_it() -> None:
    published = replace(SLOW, leaves_ending=False)
    jobs = [victim(1, "suspend"), victim(2, remaining=5.0), victim(3), urgent(3)]
    assert methods(decide(jobs, published)[1]) == {"1": "suspend", "2": "requeue", "3": "requeue"}


def test_the_validator_lets_nobody_wait_for_a_job_that_ends_later() -> None:
    plan, _ = decide([victim(1, "suspend"), victim(2, remaining=5.0), victim(3), urgent(3)])
    seen = snapshot(nodes(3, 4), [victim(1, "suspend"), victim(2, remaining=500.0), victim(3), urgent(3)])
    verdict = validate(plan, seen, PreemptionHistory(), SLOW, NOW, Conditions(max_age=30))
    assert [refused.reason for refused in verdict.refused] == [RefusalReason.NOT_POSSIBLE]


def test_what_is_left_to_run_has_a_name() -> None:
    assert SLOW.method("ends") is ENDS and ENDS.leaves


# -- after a preemption in vain ---
def tried(*sets: tuple[str, ...]) -> PreemptionHistory:
    return PreemptionHistory(tried={"90": sets})


def refs(planned: PlannedPreemption) -> set[str]:
    return {victim.ref for victim in planned.victims}


def test_others_are_taken_where_they_are_enough() -> None:
    jobs = [victim(number, remaining=1000.0 * (4 - number)) for number in (1, 2, 3)]
    (first,) = decide([*jobs, urgent(1)], QUICK)[1].preemptions
    assert refs(first) == {"1"}, "its remaining time is longest"
    (second,) = decide([*jobs, urgent(1)], QUICK, tried(("1",)))[1].preemptions
    assert refs(second) == {"2"}
    (third,) = decide([*jobs, urgent(1)], QUICK, tried(("1",), ("2",)))[1].preemptions
    assert refs(third) == {"3"}


def test_else_another_set_and_never_the_same_one() -> None:
    jobs = [victim(number) for number in (1, 2, 3)]
    (planned,) = decide([*jobs, urgent(2)], QUICK, tried(("1", "2")))[1].preemptions
    assert "3" in refs(planned) and len(refs(planned)) == 2
    plan, verdict = decide([*jobs, urgent(2)], QUICK, tried(("1", "2"), ("1", "3"), ("2", "3")))
    assert not verdict.preemptions and not verdict.refused
    assert [wait.reason for wait in plan.waits] == [Reason.TRIED_IN_VAIN]


def test_another_job_of_the_same_request_may_take_them() -> None:
    jobs = [victim(number) for number in (1, 2, 3)]
    plan, _ = decide([*jobs, urgent(3), urgent(3, 91)], QUICK, tried(("1", "2", "3")))
    assert [planned.preemptor for planned in plan.preemptions] == ["91"]


def test_the_validator_refuses_the_same_victims() -> None:
    jobs = [*(victim(number) for number in (1, 2, 3)), urgent(2)]
    plan, _ = decide(jobs, QUICK)
    same = tuple(sorted(refs(plan.preemptions[0])))
    seen = snapshot(nodes(3, 4), jobs)
    verdict = validate(plan, seen, tried(same), QUICK, NOW, Conditions(max_age=30))
    assert [refused.reason for refused in verdict.refused] == [RefusalReason.IN_VAIN_BEFORE]
