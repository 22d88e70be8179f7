"""Classes of jobs, feature expressions, queue order and bands."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from omfs_daemon.cluster.holds import could_start
from omfs_daemon.cluster.jobs import Hold
from omfs_daemon.config.build import UNMATCHED
from omfs_daemon.policy.arrays.features import satisfies
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Preemptibility, Rules, classify
from omfs_daemon.policy.rules.job_kinds import JobKinds
from omfs_daemon.policy.rules.queue_order import BAND_STEP, Band, band_of, nice_in, own_nice, own_priority, queue_order
from omfs_daemon.preemption.methods.registry import BUILT_IN_TRAITS
from tests.support.policy_builders import NOW, held, request, running, waiting


def test_a_user_chooses_only_among_what_the_site_allows() -> None:
    by = Rules(
        methods=BUILT_IN_TRAITS, unmatched=REGULAR, classes=(JobClassRule("r", methods=("suspend",), default=()),)
    )
    assert classify(by, waiting(1, comment="x omfs:method=requeue,suspend y")).methods == ("suspend",)
    assert classify(by, waiting(1, comment="omfs:method=requeue")).methods == ()
    assert classify(by, waiting(1, comment="")).preemptibility is Preemptibility.NON_PREEMPTIBLE
    assert classify(by, waiting(1, comment="omfs:method=suspend")).preemptibility is Preemptibility.CHECKPOINTABLE
    assert classify(by, waiting(1, comment="omfs:class=urgent omfs:urgent")).urgent is False


def test_a_default_counts_where_nothing_is_chosen() -> None:
    by = Rules(
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
        classes=(JobClassRule("r", methods=("requeue",), default=("requeue",)),),
    )
    assert classify(by, waiting(1, comment="")).preemptibility is Preemptibility.PREEMPTABLE
    for never in ("omfs:method=none", "omfs:method=requeue,none"):
        assert classify(by, waiting(1, comment=never)).preemptibility is Preemptibility.NON_PREEMPTIBLE


def test_several_partitions_never_raise_a_class() -> None:
    by = Rules(
        methods=BUILT_IN_TRAITS,
        unmatched=REGULAR,
        classes=(JobClassRule("u", partitions=frozenset({"fast"}), urgent=True), JobClassRule("r")),
    )
    both = request(1, partitions=("fast", "main"))
    assert not classify(by, waiting(1, request=both)).urgent
    assert not classify(by, waiting(1, request=both, partition="fast")).urgent  # the first one of its list
    assert classify(by, waiting(1, request=request(1, partitions=("fast",)))).urgent
    assert classify(by, replace(running(1, request=both), partition="fast")).urgent


def test_in_several_partitions_a_job_is_preemptible_only_if_it_is_in_each() -> None:
    open_to_all = JobClassRule("s", partitions=frozenset({"slow"}), methods=("requeue",), default=("requeue",))
    closed = JobClassRule("m", partitions=frozenset({"main"}))
    by = Rules(methods=BUILT_IN_TRAITS, classes=(open_to_all, closed), unmatched=UNMATCHED)
    chosen = {"comment": "omfs:method=requeue"}
    assert classify(by, waiting(1, request=request(1, partitions=("slow", "main")), **chosen)).methods == ()
    assert classify(by, waiting(1, request=request(1, partitions=("slow",)), **chosen)).methods == ("requeue",)
    assert classify(by, waiting(1, request=request(1, partitions=("slow", "other")), **chosen)).methods == ("requeue",)


@pytest.mark.parametrize(
    ("expression", "is_satisfied"),
    [
        ("fast", True), ("slow", False), ("fast&ve", True), ("fast,slow", False), ("slow|ve", True),
        ("slow|fast&ve", True), ("(slow|fast)&ve", True), ("[rack1|fast]", True), ("fast*2", True),
        ("fast*+2", True), ("fast* 02&ve", True),
        ("fast*2&slow*4", False), ("fast&", False), ("&", False), ("(fast", False), ("fast)", False),
    ],
)  # fmt: skip
def test_features(expression: str, is_satisfied: bool) -> None:
    assert satisfies(expression, frozenset({"fast", "ve"})) is is_satisfied


def test_bands_keep_the_own_nice() -> None:
    for nice in (-100_000, 0, 7, 100_000):
        for band in Band:
            job = waiting(1, nice=nice)
            moved = replace(job, nice=nice_in(job, band))
            assert band_of(moved) is band and own_nice(moved) == nice
    assert own_priority(waiting(1, nice=-2 * BAND_STEP, priority=2 * BAND_STEP + 5)) == 5


def test_queue_order() -> None:
    jobs = [
        waiting(1, priority=1, submit=5.0),
        waiting(2, priority=2, submit=9.0),
        waiting(4, priority=2, submit=3.0),
        waiting(3, priority=2, submit=3.0),
        held(5, priority=0),
    ]
    assert [jobs[i].id for i in queue_order(jobs)] == [5, 3, 4, 2, 1]


def test_what_could_start() -> None:
    assert could_start(waiting(1, reason="Resources"), NOW)
    assert not could_start(waiting(1, reason="Dependency"), NOW)
    assert not could_start(waiting(1, eligible=NOW + 1), NOW)
    assert not could_start(waiting(1, hold=Hold.USER), NOW)
    assert could_start(held(1, hold=Hold.USER), NOW)


@pytest.mark.parametrize("expression", ["(" * 100_000, "[(" * 50_000 + "a", "(" * 500 + "a" + ")" * 500])
def test_brackets_without_end_suit_no_node(expression: str) -> None:
    assert not satisfies(expression, frozenset("a"))


def test_many_features_are_read_in_one_pass() -> None:
    begun = time.process_time()
    assert satisfies("&".join(["a"] * 100_000), frozenset("a"))
    assert time.process_time() - begun < 5, "seconds of the processor; minutes where it is quadratic"


def test_a_tool_for_one_node_does_not_count_for_a_job_of_several() -> None:
    offered = JobClassRule("all", methods=("requeue", "dmtcp", "criu", "application"))
    by = Rules(methods=BUILT_IN_TRAITS, unmatched=REGULAR, classes=(offered,))
    comment = "omfs:method=dmtcp,criu,application"
    assert classify(by, waiting(1, comment=comment)).methods == ("dmtcp", "criu", "application")
    assert classify(by, waiting(1, comment=comment, request=request(2, nodes=2))).methods == ("application",)
    kinds, ready = JobKinds(by), "omfs:method=dmtcp omfs:run=0:ready:method=dmtcp"
    assert not kinds.of(running(1, cpus=2, comment=ready)).non_preemptible
    assert kinds.of(running(2, cpus=2, comment=ready, on=("n0", "n1"))).non_preemptible, "it left their number open"


def test_what_is_excluded_is_never_used() -> None:
    rule = JobClassRule(
        "regular", methods=("requeue", "suspend"), default=("suspend", "requeue"), last_resort="requeue"
    )
    by = Rules(classes=(rule,), methods=BUILT_IN_TRAITS, unmatched=REGULAR)
    assert classify(by, waiting(1, comment="omfs:exclude=suspend,pageout")).methods == ("requeue",)
    assert classify(by, waiting(1, comment="omfs:method=suspend omfs:exclude=suspend")).methods == ()
    without = classify(by, waiting(1, comment="omfs:exclude=requeue"))
    assert (without.methods, without.last_resort) == (("suspend",), "")


def test_a_job_is_warned_as_its_owner_says_else_as_its_class_does() -> None:
    by = Rules(classes=(JobClassRule("regular", signal="B:TERM"),), methods=BUILT_IN_TRAITS, unmatched=REGULAR)
    signals = {
        said: classify(by, waiting(1, comment=said)).signal for said in ("", "omfs:signal=USR2", "omfs:signal=none")
    }
    assert signals == {"": "B:TERM", "omfs:signal=USR2": "USR2", "omfs:signal=none": ""}
