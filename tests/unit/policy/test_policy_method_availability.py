"""In which ways a job can be stopped now, and what follows for plans."""

from __future__ import annotations

from dataclasses import replace

from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.cluster.snapshot import NodeFacts
from omfs_daemon.policy.rules.classes import ClassRule
from omfs_daemon.policy.rules.classes import Pace
from omfs_daemon.policy.rules.classes import classify
from omfs_daemon.policy.victims.method_availability import Ways
from omfs_daemon.policy.victims.method_availability import WhyNot
from tests.unit.policy.policy_builders import GB
from tests.unit.policy.policy_builders import decide
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import rules
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import waiting

READY = "omfs:method=dmtcp,requeue omfs:run=0:ready:method=dmtcp"
EVERYTHING = ("requeue", "suspend", "dmtcp", "pageout")


def ways_of(comment: str, *, run_time: float = 3600.0, limit: float = 7200.0, room: int = 8 * GB, size: int = 4 * GB,
            last_resort: str = "", just_back: tuple[str, ...] = ()) -> tuple[str, ...]:  # fmt: skip
    by = replace(
        rules(),
        classes=(ClassRule("all", methods=EVERYTHING, last_resort=last_resort),),
        paces={"dmtcp": Pace(1.0, 1.0 * GB, 7.0, 1.0 * GB), "pageout": Pace(0.3, 2.0 * GB, 0.3, 2.0 * GB)},
    )
    job = replace(running(1, comment=comment), run_time=run_time, time_limit=limit)
    facts = {node: NodeFacts({"pageout": room}) for node in job.on_nodes}
    sizes = {(job.id, "dmtcp"): size, (job.id, "pageout"): size}
    return Ways(by, facts, sizes, just_back).usable(job, classify(by, job))


def test_the_cheapest_comes_first() -> None:
    assert ways_of(READY) == ("dmtcp", "requeue")  # 16 s against an hour of work
    assert ways_of(READY, run_time=5.0) == ("requeue", "dmtcp")  # it has only just begun
    assert ways_of("omfs:method=suspend,pageout") == ("suspend", "pageout")


def test_what_the_job_or_its_nodes_cannot_do_is_left_out() -> None:
    assert ways_of("omfs:method=dmtcp") == ()
    assert ways_of("omfs:method=dmtcp omfs:run=1:ready:method=dmtcp") == ()  # of another run
    assert ways_of("omfs:method=dmtcp omfs:run=0:ready:method=criu") == ()
    assert ways_of("omfs:method=pageout", room=3 * GB) == ()
    assert ways_of("omfs:method=pageout", just_back=("1",)) == ()


def test_a_job_about_to_end_is_not_killed_for_want_of_time_to_save_it() -> None:
    assert ways_of(READY, run_time=7198.0) == ()
    assert ways_of(READY, run_time=7198.0, last_resort="requeue") == ()


def test_the_last_resort_is_for_jobs_that_nothing_of_their_own_can_stop() -> None:
    assert ways_of("omfs:method=dmtcp", last_resort="requeue") == ("requeue",)
    assert ways_of(READY.replace(",requeue", ""), last_resort="requeue") == ("dmtcp",)
    assert ways_of("", last_resort="requeue") == ()  # never stopped, whatever the class says


def test_room_is_counted_for_all_that_are_stopped_together() -> None:
    by = replace(rules(), classes=(ClassRule("all", methods=("pageout",)),))
    first, second = (running(number, comment="omfs:method=pageout") for number in (1, 2))
    facts = {node: NodeFacts({"pageout": 6 * GB}) for node in (*first.on_nodes, *second.on_nodes)}
    ways = Ways(by, facts, {(1, "pageout"): 4 * GB, (2, "pageout"): 4 * GB})
    assert ways.why_not(first, "pageout") is ways.why_not(second, "pageout") is None
    same_node = set(first.on_nodes) & set(second.on_nodes)
    assert same_node and not ways.fit_together([(first, "pageout"), (second, "pageout")])
    ways.take([(first, "pageout")])
    assert ways.why_not(second, "pageout") is WhyNot.NO_ROOM


def test_a_word_in_a_comment_alone_is_not_enough_to_hold_what_was_lent() -> None:
    """A running job that only omfs-run could stop counts as one that is never stopped until omfs-run has spoken."""
    by = replace(rules(bio=50, physics=50), classes=(ClassRule("all", methods=EVERYTHING),))
    only_said, spoken = (
        replace(running(1, "bio", 2), comment=comment)
        for comment in ("omfs:method=dmtcp", "omfs:method=dmtcp omfs:run=0:ready:method=dmtcp")
    )
    wants = waiting(9, "bio", 1, comment="")  # it may never be stopped, so it must fit into bio's two CPUs
    assert [hold.ref for hold in decide(nodes(1), [only_said, wants], by).holds] == ["9"]
    assert not decide(nodes(1), [spoken, wants], by).holds


def test_who_could_not_be_stopped_lately_is_tried_last() -> None:
    jobs = [running(number, "bio", 2, comment="omfs:method=requeue") for number in (1, 2)]
    wants = waiting(9, "physics", 2)
    for stubborn, other in (("1", "2"), ("2", "1")):
        ledger = Ledger(failures={stubborn: 1})
        (reclaim,) = decide(nodes(1), [*jobs, wants], rules(bio=50, physics=50), ledger).reclaims
        assert [victim.ref for victim in reclaim.victims] == [other]
