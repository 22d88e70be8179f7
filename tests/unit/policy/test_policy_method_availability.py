"""Which preemption methods are available for a job, what they cost, and what follows for plans."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.preempt_methods import PreemptionCost
from omfs_daemon.cluster.snapshot import NodeRoom, PreemptionHistory
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.rules.classes import JobClassRule, MethodSpeed, classify
from omfs_daemon.policy.validator import validate
from omfs_daemon.policy.victims.method_availability import MethodAvailability, WhyUnavailable
from tests.support.policy_builders import (
    FRESH,
    GB,
    NOW,
    decide,
    nodes,
    request,
    rules,
    running,
    snapshot,
    waiting,
)

READY = "omfs:method=dmtcp,requeue omfs:run=0:ready:method=dmtcp"
EVERYTHING = ("requeue", "suspend", "dmtcp", "pageout")


def usable_methods(
    comment: str,
    *,
    run_time: float = 3600.0,
    limit: float = 7200.0,
    room: int = 8 * GB,
    size: int = 4 * GB,
    last_resort: str = "",
    just_resumed: tuple[str, ...] = (),
) -> tuple[str, ...]:
    by = replace(
        rules(),
        classes=(JobClassRule("all", methods=EVERYTHING, last_resort=last_resort),),
        speeds={
            "dmtcp": MethodSpeed(1.0, 1.0 * GB, 7.0, 1.0 * GB),
            "pageout": MethodSpeed(0.3, 2.0 * GB, 0.3, 2.0 * GB),
        },
    )
    job = replace(running(1, comment=comment), run_time=run_time, time_limit=limit)
    facts = {node: NodeRoom({"pageout": room}) for node in job.on_nodes}
    sizes = {(job.id, "dmtcp"): size, (job.id, "pageout"): size}
    return MethodAvailability(by, facts, sizes, just_resumed).usable(job, classify(by, job))


def test_the_cheapest_comes_first() -> None:
    assert usable_methods(READY) == ("dmtcp", "requeue")  # 16 s against an hour of work
    assert usable_methods(READY, run_time=5.0) == ("requeue", "dmtcp")  # it has only just begun
    assert usable_methods("omfs:method=suspend,pageout") == ("suspend", "pageout")


def test_what_the_job_or_its_nodes_cannot_do_is_left_out() -> None:
    assert usable_methods("omfs:method=dmtcp") == ()
    assert usable_methods("omfs:method=dmtcp omfs:run=1:ready:method=dmtcp") == ()  # of another run
    assert usable_methods("omfs:method=dmtcp omfs:run=0:ready:method=criu") == ()
    assert usable_methods("omfs:method=pageout", room=3 * GB) == ()
    assert usable_methods("omfs:method=pageout", just_resumed=("1",)) == ()


def test_a_job_about_to_end_is_not_killed_for_want_of_time_to_save_it() -> None:
    assert usable_methods(READY, run_time=7198.0) == ()
    assert usable_methods(READY, run_time=7198.0, last_resort="requeue") == ()


def test_the_last_resort_is_for_jobs_without_a_method_that_works() -> None:
    assert usable_methods("omfs:method=dmtcp", last_resort="requeue") == ("requeue",)
    assert usable_methods(READY.replace(",requeue", ""), last_resort="requeue") == ("dmtcp",)
    assert usable_methods("", last_resort="requeue") == ()  # non-preemptible, whatever the class says


def test_room_is_counted_for_all_victims_together() -> None:
    by = replace(rules(), classes=(JobClassRule("all", methods=("pageout",)),))
    first, second = (running(number, comment="omfs:method=pageout") for number in (1, 2))
    facts = {node: NodeRoom({"pageout": 6 * GB}) for node in (*first.on_nodes, *second.on_nodes)}
    availability = MethodAvailability(by, facts, {(1, "pageout"): 4 * GB, (2, "pageout"): 4 * GB})
    assert availability.why_not(first, "pageout") is availability.why_not(second, "pageout") is None
    same_node = set(first.on_nodes) & set(second.on_nodes)
    assert same_node and not availability.fit_together([(first, "pageout"), (second, "pageout")])
    availability.take([(first, "pageout")])
    assert availability.why_not(second, "pageout") is WhyUnavailable.NO_ROOM


def test_a_job_comment_alone_is_not_enough_to_keep_borrowed_cpus() -> None:
    """A running job that only omfs-run could preempt counts as non-preemptible until omfs-run reports."""
    by = replace(rules(bio=50, physics=50), classes=(JobClassRule("all", methods=EVERYTHING),))
    only_declared, reported = (
        replace(running(1, "bio", 2), comment=comment)
        for comment in ("omfs:method=dmtcp", "omfs:method=dmtcp omfs:run=0:ready:method=dmtcp")
    )
    wants = waiting(9, "bio", 1, comment="")  # non-preemptible, so it must fit into bio's two CPUs
    assert [hold.ref for hold in decide(nodes(1), [only_declared, wants], by).holds] == ["9"]
    assert not decide(nodes(1), [reported, wants], by).holds


def test_a_verdict_carries_the_cost_of_each_victim() -> None:
    by = replace(rules(bio=50, physics=50), speeds={"requeue": MethodSpeed(2.0, 1.0 * GB, 3.0, 0.5 * GB)})
    victim = replace(running(1, "bio", 4, request=request(4, memory_per_node=8)), run_time=100.0)
    site = replace(snapshot(nodes(1), [victim, waiting(9, "physics", 2)]), sizes={(1, "requeue"): 4 * GB})
    suggested = make_plan(site, PreemptionHistory(), by, NOW)
    verdict = validate(suggested, site, PreemptionHistory(), by, NOW, FRESH)
    assert verdict.costs == {("1", "requeue"): PreemptionCost(preempt=6.0, resume=11.0, lost=100.0)}
    paused = validate(suggested, site, PreemptionHistory(), by, NOW, replace(FRESH, paused=True))
    assert paused.refused and not paused.costs


def test_jobs_that_could_not_be_preempted_are_tried_last() -> None:
    jobs = [running(number, "bio", 2, comment="omfs:method=requeue") for number in (1, 2)]
    wants = waiting(9, "physics", 2)
    for stubborn, other in (("1", "2"), ("2", "1")):
        history = PreemptionHistory(failures={stubborn: 1})
        (planned,) = decide(nodes(1), [*jobs, wants], rules(bio=50, physics=50), history).preemptions
        assert [victim.ref for victim in planned.victims] == [other]
