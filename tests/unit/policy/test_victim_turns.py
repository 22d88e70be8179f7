"""Whose turn it is to give: jobs make progress, and limits do not keep urgent jobs waiting."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.preempt_methods import MethodSpeed
from omfs_daemon.cluster.snapshot import PreemptedJob, PreemptionHistory
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.rules.classes import JobClassRule, classify
from omfs_daemon.policy.validator import RefusalReason, validate
from omfs_daemon.policy.victims.eligibility import grown_quantum
from tests.support.policy_builders import (
    CLASSES,
    FRESH,
    NOW,
    decide,
    held,
    nodes,
    rules,
    running,
    snapshot,
    started,
    suspended,
    under_way,
    urgent,
    victims_by_preemptor,
    waiting,
    why_waiting,
)

HALVES = rules(bio=50, physics=50)


def test_the_job_preempted_least_often_gives() -> None:
    jobs = [running(n, start=float(n)) for n in (1, 2, 3, 4)]
    often = PreemptionHistory(preemption_counts={"4": 2, "3": 1, "2": 1})
    assert victims_by_preemptor(decide(nodes(1), [*jobs, waiting(9, "physics")], HALVES, often)) == {"9": {"1"}}


def test_the_quantum_doubles_with_each_preemption_up_to_the_time_limit() -> None:
    job = running(1, time_limit=1000.0)
    job_class = replace(classify(HALVES, job), quantum=100.0)
    grown = [grown_quantum(job, job_class, PreemptionHistory(preemption_counts={"1": n})) for n in (0, 1, 2, 3, 4, 99)]
    assert grown == [100.0, 200.0, 400.0, 800.0, 1000.0, 1000.0]
    short = replace(job, time_limit=50.0)
    assert grown_quantum(short, job_class, PreemptionHistory(preemption_counts={"1": 3})) == 100.0


def test_the_limit_per_hour_does_not_protect_from_urgent_jobs() -> None:
    by = replace(HALVES, max_preemptions_per_hour=1)
    often = PreemptionHistory(preemption_times={"1": (NOW - 5,)})
    jobs = [running(1, cpus=4), running(2, cpus=4, on="n1", non_preemptible=True)]
    for preemptor, reason in ((waiting(9, "physics"), RefusalReason.PREEMPTED_TOO_OFTEN), (urgent(9, "physics"), None)):
        seen = snapshot(nodes(2), [*jobs, preemptor])
        suggested = decide(nodes(2), [*jobs, preemptor], by, often)
        assert bool(suggested.preemptions) == (reason is None)
        unlimited = decide(nodes(2), [*jobs, preemptor], by)
        refused = validate(unlimited, seen, often, by, NOW, FRESH).refused
        assert [one.reason for one in refused] == ([reason] if reason else [])


def test_own_preemptible_jobs_give_way_to_non_preemptible_ones() -> None:
    """The account is at its entitlement, and nobody else is above theirs."""
    jobs = [running(1, cpus=2), running(3), running(4), running(5, "physics", 4, "n1")]
    for wants, victims in ((held(9, cpus=2), {"9": {"3", "4"}}), (waiting(9, cpus=2), {})):
        suggested = decide(nodes(2), [*jobs, wants], HALVES)
        assert victims_by_preemptor(suggested) == victims
        verdict = validate(suggested, snapshot(nodes(2), [*jobs, wants]), PreemptionHistory(), HALVES, NOW, FRESH)
        assert verdict.preemptions == suggested.preemptions
        assert [planned.reason for planned in suggested.preemptions] == [Reason.OWN_ACCOUNT for _ in victims]
    assert decide(nodes(2), [*jobs, held(9)], replace(HALVES, own_jobs_give_way=False)).preemptions == ()
    in_quantum = decide(nodes(2), [*jobs, held(9)], replace(HALVES, quantum=2 * NOW))
    assert why_waiting(in_quantum) == {"9": "BEYOND_ENTITLEMENT"}
    strangers = [running(1, "a", 4), held(9, "b")]
    assert decide(nodes(1), strangers, rules(physics=0)).preemptions == ()  # two accounts in one entity


def test_own_jobs_give_no_more_than_non_preemptible_jobs_may_have() -> None:
    jobs = [running(1, cpus=3, non_preemptible=True), running(2), running(5, "physics", 4, "n1")]
    assert victims_by_preemptor(decide(nodes(2), [*jobs, held(9)], HALVES)) == {"9": {"2"}}
    assert why_waiting(decide(nodes(2), [*jobs, held(9, cpus=2)], HALVES)) == {"9": "NON_PREEMPTIBLE_BEYOND"}


def test_a_suspended_job_does_not_wait_behind_newer_jobs_of_its_account() -> None:
    preempted = PreemptionHistory(preempted={"2": PreemptedJob(NOW - 9, "suspend", "8")})
    others = [running(5, "physics", 4, "n1")]
    for other, victims in ((running(3, cpus=4), {"2": {"3"}}), (running(1, cpus=4), {})):
        suggested = decide(nodes(2), [suspended(2, cpus=4), other, *others], HALVES, preempted)
        assert victims_by_preemptor(suggested) == victims


def test_own_jobs_are_spared_where_cpus_are_being_freed() -> None:
    """Another job of the account is preempted already, and the node that it leaves is promised to nobody."""
    jobs = [running(1, cpus=4), running(2, cpus=4, on="n1"), running(3, "physics", 8, ("n2", "n3"))]
    leaving = PreemptionHistory(under_way=(under_way("99", "physics", [], "1"),))
    suggested = decide(nodes(4), [*jobs, held(9, cpus=4)], rules(bio=40, physics=60), leaving)
    assert suggested.preemptions == ()


def test_a_job_that_could_not_be_preempted_counts_as_non_preemptible() -> None:
    jobs = [running(1, cpus=3), running(5, "physics", 4, "n1")]
    stuck = PreemptionHistory(failures={"1": 1})
    assert started(decide(nodes(2), [*jobs, held(9)], HALVES, stuck)) == ["9"]
    spared = PreemptionHistory(failures={"1": 0})
    for history, reason in ((stuck, {"9": "NON_PREEMPTIBLE_BEYOND"}), (spared, {}), (PreemptionHistory(), {})):
        assert why_waiting(decide(nodes(3), [*jobs, held(9, cpus=4)], HALVES, history)) == reason


def test_others_give_before_jobs_and_users_that_did_not() -> None:
    jobs = [replace(running(n), uid=uid) for n, uid in ((1, 10), (2, 11), (3, 10), (4, 12))]
    stuck = PreemptionHistory(failures={"3": 1})
    for cpus, victims in ((1, {"4"}), (2, {"4", "2"}), (3, {"4", "2", "1"})):
        for wants in (waiting(9, "physics", cpus), urgent(9, "physics", cpus)):
            by = rules(physics=100)
            assert victims_by_preemptor(decide(nodes(1), [*jobs, wants], by, stuck)) == {"9": victims}


def test_for_urgent_jobs_those_give_that_let_go_quickly() -> None:
    """The job with more time left would need ten seconds."""
    dmtcp = "omfs:method=dmtcp omfs:run=0:ready:method=dmtcp"
    by = replace(
        rules(physics=100),
        classes=(CLASSES[0], JobClassRule("regular", methods=("requeue", "dmtcp"))),
        speeds={"dmtcp": MethodSpeed(preempt_seconds=10.0)},
    )
    jobs = [running(1, time_limit=3600.0, cpus=2, comment=dmtcp), running(2, time_limit=60.0, cpus=2)]
    assert victims_by_preemptor(decide(nodes(1), [*jobs, urgent(9)], by)) == {"9": {"2"}}
    both = victims_by_preemptor(decide(nodes(1), [*jobs, urgent(9, cpus=3)], by))
    assert both == {"9": {"1", "2"}}


def test_no_job_is_preempted_that_ends_before_it_would_have_let_go() -> None:
    slow = replace(HALVES, speeds={"requeue": MethodSpeed(preempt_seconds=10.0)})
    for left, victims in ((9.0, {}), (11.0, {"9": {"1"}}), (0.0, {"9": {"1"}})):
        job = running(1, cpus=4, time_limit=100.0, run_time=100.0 - left)
        suggested = decide(nodes(1), [job, waiting(9, "physics")], slow)
        assert victims_by_preemptor(suggested) == victims


@given(
    st.lists(st.integers(10, 400), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(15, 60),
)
def test_every_job_ends_however_long_others_want_its_cpus(lengths: list[int], gaps: list[int], quantum: int) -> None:
    """Requeued jobs start over; an owner takes their CPUs as often as the rules let it, and never stops."""
    by = replace(HALVES, quantum=float(quantum))
    left = dict(enumerate(lengths, 1))
    counts: dict[str, int] = {}
    since: dict[int, float] = {}
    now, cycle = NOW, 0
    while left:
        cycle += 1
        assert cycle < 600
        now += 15.0
        for number, at in list(since.items()):
            if now - at >= left[number]:
                del left[number], since[number]
        free = 2 - len(since)
        for number in sorted(left.keys() - since.keys(), key=lambda n: counts.get(str(n), 0))[:free]:
            since[number] = now
        jobs = [running(n, "physics", start=at, time_limit=left[n] * 2.0) for n, at in since.items()]
        owners = [] if gaps[cycle % len(gaps)] else [waiting(99, "bio", 1)]
        idle = [running(50 + n, "stranger", non_preemptible=True) for n in range(4 - len(since))]
        by_now = replace(by, tree=rules(bio=100).tree)
        history = PreemptionHistory(preemption_counts=counts)
        for planned in decide(nodes(1), [*jobs, *idle, *owners], by_now, history, now).preemptions:
            for victim in planned.victims:
                counts = {**counts, victim.ref: counts.get(victim.ref, 0) + 1}
                del since[int(victim.ref)]
