"""Real-time jobs in a plan: when they are due, whom they go before, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.plan import Plan, Reason
from omfs_daemon.policy.rules.classes import JobClassRule, Rules, classify
from omfs_daemon.policy.rules.queue_order import Band
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.policy.rules.slowdown_laws import (
    CATEGORIES,
    category_of,
    remaining_factor,
    running_slowdown,
    threshold_crossing,
    waiting_slowdown,
)
from tests.support.policy_builders import (
    NOW,
    decide,
    nodes,
    request,
    rules,
    running,
    started,
    urgent,
    victims_by_preemptor,
    waiting,
    why_waiting,
)

TERMS = RealtimeTerms(victim_max=(1.5,) * 4)


def site_rules(terms: RealtimeTerms = TERMS, **percents: float) -> Rules:
    by = rules(**(percents or {"bio": 50, "physics": 50}))
    rule = JobClassRule("beamline", qos=frozenset({"rt"}), realtime=terms)
    return replace(by, classes=(rule, *by.classes), quantum=3600.0)


def realtime(
    number: int, waited: float, account: str = "bio", limit: float = 1000.0, cpus: int = 4, **fields: object
) -> Job:
    return waiting(number, account, cpus, qos="rt", time_limit=limit, submit=NOW - waited, comment="", **fields)


def victim(
    number: int, on: str, account: str = "physics", ran: float = 1000.0, waited: float = 0.0, cpus: int = 4
) -> Job:
    submit = NOW - ran - waited
    fields = {"submit": submit, "run_time": ran, "time_limit": 4000.0, "start": NOW - ran}
    return running(number, account, cpus, on, comment="omfs:method=suspend", **fields)


def the_wait(plan: Plan, ref: str) -> str:
    (text,) = [wait.text for wait in plan.waits if wait.ref == ref]
    return text


def test_the_laws_of_slowdown() -> None:
    assert waiting_slowdown(0.0, 100.0, 20.0) == 1.2
    assert running_slowdown(0.0, 100.0, 80.0, 30.0) == 1.5, "30 s of 80 s it ran"
    assert threshold_crossing(5.0, 100.0, 1.1) == pytest.approx(15.0)
    assert waiting_slowdown(0.0, inf, 50.0) == 1.0
    assert threshold_crossing(0.0, inf, 1.1) == inf
    names = [CATEGORIES[category_of(cpus, limit, 48, 25.0, 7200.0)] for cpus in (12, 13) for limit in (7200.0, 7201.0)]
    assert names == [*CATEGORIES]
    assert [remaining_factor(left, 9000.0) for left in (900.0, 901.0)] == [5.0, 1.0]
    assert [remaining_factor(left, 400.0) for left in (100.0, 101.0)] == [5.0, 1.0]


def test_nobody_is_preempted_before_the_threshold() -> None:
    by = site_rules(physics=100)
    jobs = [victim(1, "n0"), victim(2, "n1")]
    early = decide(nodes(2), [*jobs, realtime(9, waited=99.0)], by)
    assert not early.preemptions
    assert the_wait(early, "9") == (
        "it is real-time and not due yet, and does not fit on idle nodes: "
        "its slowdown is 1.10, its class acts at 1.10, in 1 s"
    )
    assert early.next_due == pytest.approx(NOW + 1.0)
    due = decide(nodes(2), [*jobs, realtime(9, waited=100.0)], by)
    assert [planned.reason for planned in due.preemptions] == [Reason.REALTIME]
    assert due.next_due == inf


def test_the_threshold_counts_from_when_slurm_could_have_started_the_job() -> None:
    """Who submits a job early and puts its start off with --begin gains nothing."""
    early = realtime(9, waited=5000.0, eligible=NOW - 10.0)
    plan = decide(nodes(1), [victim(1, "n0"), early], site_rules(physics=100))
    assert not plan.preemptions
    assert plan.realtime[0].slowdown == pytest.approx(1.01)


def test_a_victim_above_its_threshold_is_spared_and_no_quantum_protects() -> None:
    by = site_rules(physics=100)
    late, fresh = victim(1, "n0", waited=3000.0), victim(2, "n1", ran=60.0)
    assert victims_by_preemptor(decide(nodes(2), [late, fresh, realtime(9, 100.0)], by)) == {"9": {"2"}}
    assert why_waiting(decide(nodes(1), [late, realtime(9, 100.0)], by)) == {"9": "NOT_ENOUGH_VICTIMS"}


def test_the_job_that_is_nearly_done_costs_more() -> None:
    by = site_rules(physics=100)
    jobs = [victim(1, "n0", ran=3900.0), victim(2, "n1", ran=2000.0, waited=1000.0), realtime(9, 100.0)]
    assert victims_by_preemptor(decide(nodes(2), jobs, by)) == {"9": {"2"}}


def test_borrowers_give_before_accounts_within_their_entitlement() -> None:
    by = site_rules(bio=10, physics=50, maths=40)
    owner, borrower = victim(1, "n0", "maths"), victim(2, "n1", "physics", waited=1500.0, ran=3900.0)
    other = victim(3, "n2", "physics", waited=1500.0, ran=3900.0)
    jobs = [owner, borrower, other, victim(4, "n3", "physics"), realtime(9, 100.0)]
    plan = decide(nodes(4), jobs, by)
    assert victims_by_preemptor(plan) == {"9": {"4"}}
    without = [replace(job, comment="") if job.id in (2, 3, 4) else job for job in jobs]
    assert victims_by_preemptor(decide(nodes(4), without, by)) == {"9": {"1"}}
    assert not decide(nodes(4), without, replace(by, urgent_may_take_entitled=False)).preemptions


def test_urgent_goes_first_then_the_greatest_slowdown() -> None:
    by = site_rules(physics=100)
    jobs = [victim(1, "n0"), realtime(8, 100.0), realtime(9, 200.0), urgent(7, "bio", 4, submit=NOW)]
    plan = decide(nodes(1), jobs, by)
    assert [planned.preemptor for planned in plan.preemptions] == ["7"]
    bands = {rank.ref: rank.band for rank in plan.ranks}
    assert {ref: bands[ref] for ref in ("8", "9")} == {"8": Band.REALTIME, "9": Band.REALTIME}
    assert [planned.preemptor for planned in decide(nodes(1), jobs[:3], by).preemptions] == ["9"]


def test_a_due_job_that_finds_no_cheap_victims_keeps_its_account_s_right() -> None:
    by = replace(site_rules(bio=50, physics=50), quantum=0.0)
    jobs = [victim(1, "n0", waited=9000.0), victim(2, "n1", waited=9000.0), realtime(9, 100.0)]
    (planned,) = decide(nodes(2), jobs, by).preemptions
    assert (planned.preemptor, planned.reason) == ("9", Reason.ENTITLED)


def test_one_that_is_not_due_is_an_ordinary_job_of_its_account() -> None:
    by = replace(site_rules(bio=50, physics=50), quantum=0.0)
    (planned,) = decide(nodes(2), [victim(1, "n0"), victim(2, "n1"), realtime(9, 0.0)], by).preemptions
    assert planned.reason is Reason.ENTITLED
    assert started(decide(nodes(1), [realtime(9, 0.0, "stranger")], by)) == ["9"], "idle nodes are lent to it"


def test_idle_nodes_are_for_one_that_is_not_due_before_others() -> None:
    """Whoever started there would soon be preempted for it, in vain."""
    by, victims = site_rules(physics=100), [victim(2, "n1")]
    owner, early = waiting(8, "physics", 4, submit=NOW - 900.0), realtime(9, 0.0, "stranger")
    plan = decide(nodes(2), [*victims, owner, early], by)
    assert started(plan) == ["9"]
    assert {rank.ref: rank.band for rank in plan.ranks}["9"] is Band.REALTIME
    full = decide(nodes(2), [*victims, victim(1, "n0"), owner, early], by)
    assert not full.starts and not full.preemptions
    assert {rank.ref: rank.band for rank in full.ranks}["9"] is Band.REALTIME, "Slurm starts it when nodes are free"


@pytest.mark.parametrize(
    ("limit", "changed"), [(inf, {}), (1000.0, {"urgent_may_take_entitled": False})], ids=["no limit", "no right"]
)
def test_one_that_will_not_take_from_owners_waits_behind_them(limit: float, changed: dict[str, bool]) -> None:
    by = replace(site_rules(physics=100), **changed)
    jobs = [waiting(8, "physics", 4, submit=NOW - 900.0), realtime(9, 0.0, "stranger", limit=limit)]
    assert started(decide(nodes(1), jobs, by)) == ["8"]


def test_tasks_of_an_array_that_are_not_due_start_once() -> None:
    tasks = realtime(9, 0.0, "bio", cpus=2, ref="9_[1-3]", array_id=9, task_ids=(1, 2, 3))
    plan = decide(nodes(1), [tasks], site_rules(bio=50, physics=50))
    assert started(plan) == ["9_1", "9_2"]
    assert plan.waits, "the third one"


def test_without_a_time_limit_a_job_is_never_due() -> None:
    plan = decide(nodes(1), [victim(1, "n0"), realtime(9, 5000.0, limit=inf)], site_rules(physics=100))
    assert not plan.preemptions
    assert "it has no time limit" in the_wait(plan, "9")


def test_the_limit_at_first_sight_counts_unless_a_later_one_is_longer() -> None:
    by, edited = site_rules(physics=100), realtime(9, 100.0, limit=10.0)
    seen_before = PreemptionHistory(time_limits={"9": 2000.0})
    assert not decide(nodes(1), [victim(1, "n0"), edited], by, seen_before).preemptions
    assert decide(nodes(1), [victim(1, "n0"), edited], by).preemptions
    longer = replace(edited, time_limit=4000.0)
    assert decide(nodes(1), [victim(1, "n0"), longer], by, seen_before).realtime[0].limit == 4000.0


@pytest.mark.parametrize(("asked", "bound", "act_at"), [("1.5", 1.5, 1.4), ("1.1", 1.2, 1.1), ("x", 1.2, 1.1)])
def test_a_user_may_ask_for_a_looser_bound_only(asked: str, bound: float, act_at: float) -> None:
    terms = classify(site_rules(), replace(realtime(9, 0.0), comment=f"omfs:bound={asked}")).realtime
    assert terms is not None
    assert (terms.bound, terms.act_at) == (bound, (pytest.approx(act_at),) * 4)


def test_the_comment_makes_no_job_real_time() -> None:
    hopeful = waiting(9, "bio", 4, time_limit=10.0, submit=NOW - 900.0, comment="omfs:bound=1.5 omfs:class=beamline")
    plan = decide(nodes(1), [victim(1, "n0"), hopeful], site_rules(physics=100))
    assert not plan.preemptions
    assert not plan.realtime


def test_a_job_larger_than_a_node_takes_several_if_it_may() -> None:
    cluster = nodes(3, 4)
    jobs = [victim(number, f"n{number - 1}", ran=1000.0 * number) for number in (1, 2, 3)]
    one = realtime(9, 200.0, request=request(8, max_nodes=0))
    assert victims_by_preemptor(decide(cluster, [*jobs, one], site_rules())) == {"9": {"1", "2"}}
    fixed = realtime(9, 200.0, request=request(8, max_nodes=1))
    assert not decide(cluster, [*jobs, fixed], site_rules()).preemptions
