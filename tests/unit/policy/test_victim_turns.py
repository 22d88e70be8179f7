"""Whose turn it is to give: jobs make progress, and limits do not keep urgent jobs waiting."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.validator import RefusalReason, validate
from omfs_daemon.policy.victims.eligibility import grown_quantum
from tests.support.policy_builders import (
    FRESH,
    NOW,
    decide,
    nodes,
    rules,
    running,
    snapshot,
    urgent,
    victims_by_preemptor,
    waiting,
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
