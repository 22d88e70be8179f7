"""What the submit plug-in may let in between two plans."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.accounts import AccountTree
from omfs_daemon.cluster.jobs import Hold, Job
from omfs_daemon.policy.admission_room import room_without_hold
from omfs_daemon.policy.arrays.usage import Usage
from tests.support.policy_builders import NOW, array, decide, held, nodes, rules, running, tree, waiting

DEEP = {"bio": 50.0, "bio__genes": 50.0, "bio__cells": 30.0, "physics": 40.0}
LEAVES = ("bio", "genes", "cells", "physics", "")


def room_of(jobs: list[Job], **percents: float) -> dict[str, int]:
    """By entity, of a machine of 40 CPUs."""
    by = rules(**percents)
    found = decide(nodes(10), jobs, by).room
    return {entity.name: found[entity.index] for entity in by.tree.entities}


def test_the_room_is_what_no_job_uses_or_may_use_at_any_moment() -> None:
    runs = running(1, "bio", 4, comment="")
    waits = waiting(2, "bio", 3, non_preemptible=True)
    assert room_of([runs, waits, running(3, "bio", 4, "n1")], bio=50, physics=50) == {
        "bio": 13,
        "physics": 20,
        "(others)": 0,
    }


def test_what_is_released_counts() -> None:
    assert room_of([held(1, "bio", 4)], bio=50)["bio"] == 16


def test_a_held_job_that_could_start_has_all_that_its_account_has_left() -> None:
    """It is released when its nodes are free, and what comes after it must not pass it."""
    beyond = held(1, "genes", 8)
    assert room_of([beyond, running(2, "genes", 4, comment="")], **DEEP) == {
        "bio": 10,
        "genes": 0,
        "cells": 6,
        "bio(others)": 4,
        "physics": 16,
        "(others)": 4,
    }


def test_a_job_larger_than_the_entitlement_is_not_waited_for() -> None:
    assert room_of([held(1, "genes", 11)], **DEEP)["genes"] == 10
    assert room_of([waiting(1, "bio", 21, non_preemptible=True)], bio=50)["bio"] == 20


def test_a_job_to_be_held_counts_as_held() -> None:
    runs = running(1, "bio", 4, comment="")
    assert room_of([runs, waiting(2, "bio", 17, non_preemptible=True)], bio=50)["bio"] == 0


def test_a_held_job_for_later_has_what_it_asks_for() -> None:
    later = held(1, "bio", 3, eligible=NOW + 60)
    tasks = array(2, 2, "bio", 4, comment="", hold=Hold.ADMIN, admin_comment="omfs:held:0", eligible=inf)
    assert room_of([later, tasks], bio=50)["bio"] == 20 - 3 - 8


def test_what_somebody_else_holds_takes_nothing() -> None:
    assert room_of([waiting(1, "bio", 4, non_preemptible=True, hold=Hold.USER)], bio=50)["bio"] == 20


def test_an_account_that_owns_all_cpus_is_never_held() -> None:
    jobs = [
        waiting(1, "bio", 100, non_preemptible=True),
        waiting(2, "bio", 1, non_preemptible=True, eligible=NOW + 60),
    ]
    assert decide(nodes(10), jobs, rules(bio=100)).holds == ()
    assert decide(nodes(10), jobs, rules(bio=100, bio__genes=50)).holds != (), "half of it is another's"


def totals(by: AccountTree, cpus: Mapping[str, int]) -> list[int]:
    found = [0] * len(by.entities)
    for account, number in cpus.items():
        for index in by.leaf(account).path:
            found[index] += number
    return found


@given(
    runs=st.fixed_dictionaries({leaf: st.integers(0, 8) for leaf in LEAVES}),
    claims=st.fixed_dictionaries({leaf: st.sampled_from([0, 1, 3, inf]) for leaf in LEAVES}),
    let_in=st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(1, 8)), max_size=8),
    ended=st.fixed_dictionaries({leaf: st.integers(0, 8) for leaf in LEAVES}),
    released=st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(1, 8)), max_size=8),
)
def test_plug_in_and_next_plan_together_keep_every_entitlement(
    runs: dict[str, int],
    claims: dict[str, float],
    let_in: list[tuple[str, int]],
    ended: dict[str, int],
    released: list[tuple[str, int]],
) -> None:
    """The plan does not see what the plug-in has let in; it releases what was claimed, also on CPUs that have become
    free meanwhile."""
    by = tree(**DEEP)
    usage = Usage(by, 40)
    for account, cpus in runs.items():
        if usage.admits_non_preemptible(by.leaf(account), cpus):
            usage.add_non_preemptible(by.leaf(account), cpus)
        else:
            runs[account] = 0
    room = list(room_without_hold(usage, {by.leaf(account).index: cpus for account, cpus in claims.items()}))
    unseen = dict.fromkeys(LEAVES, 0)
    for account, cpus in let_in:
        path = by.leaf(account).path
        if all(room[level] >= cpus for level in path):
            unseen[account] += cpus
            for level in path:
                room[level] -= cpus
    for account, cpus in ended.items():
        usage.add_non_preemptible(by.leaf(account), -min(cpus, runs[account]))
    for account, cpus in released:
        if claims[account] >= cpus and usage.admits_non_preemptible(by.leaf(account), cpus):
            claims[account] -= cpus
            usage.add_non_preemptible(by.leaf(account), cpus)
    used = [seen + more for seen, more in zip(usage.non_preemptible, totals(by, unseen), strict=True)]
    assert all(cpus <= most for cpus, most in zip(used, usage.entitled, strict=True)), (used, usage.entitled)


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_room_is_negative_where_an_entitlement_is_exceeded(leaf: str) -> None:
    by = tree(**DEEP)
    usage = Usage(by, 40)
    usage.add_non_preemptible(by.leaf(leaf), 100)
    assert min(room_without_hold(usage, {})) >= 0
