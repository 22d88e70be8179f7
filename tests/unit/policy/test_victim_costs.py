"""What victims of real-time jobs cost, many at once, and the cheapest of those on one node."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.snapshot import RemainingTime
from omfs_daemon.policy.rules.realtime_terms import CostWeights, JobSize, RealtimeTerms
from omfs_daemon.policy.victims.cheapest_nodes import NodeVictims, cheapest_cover, groups_of
from omfs_daemon.policy.victims.need import RealtimeNeed
from omfs_daemon.policy.victims.remaining_times import RemainingTimes
from omfs_daemon.policy.victims.victim_costs import cost_of_victim, costs_of_victims
from tests.support.policy_builders import NOW, rules, running

JOBS = st.lists(
    st.tuples(
        st.integers(1, 64),
        st.sampled_from((60.0, 3600.0, 7200.0, 7201.0, 86400.0, inf)),
        st.floats(0, 1e5),
        st.floats(0, 1e5),
        st.sampled_from((0.0, 30.0, 5000.0)),
        st.sampled_from((None, 10.0, 2000.0)),
    ),
    min_size=1,
    max_size=20,
)
TERMS = st.builds(
    RealtimeTerms,
    victim_max=st.tuples(*[st.sampled_from((1.0, 1.5, 17.31))] * 4),
    weights=st.builds(CostWeights, *[st.sampled_from((0.0, 0.5, 1.0, 2.0))] * 3),
)


@given(JOBS, TERMS)
def test_many_victims_at_once_cost_what_each_costs(
    drawn: list[tuple[int, float, float, float, float, float | None]], terms: RealtimeTerms
) -> None:
    by = replace(rules(bio=50), job_size=JobSize(10.0, 7200.0))
    remaining = {
        number: RemainingTime(likely, likely)
        for number, (*_, likely) in enumerate(drawn, start=1)
        if likely is not None
    }
    need = RealtimeNeed(terms, 128, NOW, {"1": NOW - 3e5}, RemainingTimes(remaining))
    jobs = [
        running(number, "bio", cpus, "n1", submit=NOW - run - waited, start=NOW - run, run_time=run, time_limit=limit)
        for number, (cpus, limit, run, waited, *_) in enumerate(drawn, start=1)
    ]
    outlays = [outlay for *_, outlay, _ in drawn]
    each = [cost_of_victim(job, need, by, outlay) for job, outlay in zip(jobs, outlays, strict=True)]
    total, is_eligible = costs_of_victims(
        need,
        by,
        np.array([cpus for cpus, *_ in drawn]),
        np.array([need.waits_since.get(job.ref, job.submit) for job in jobs]),
        np.array([job.time_limit for job in jobs]),
        np.array([need.remaining.whole_run(job) for job in jobs]),
        np.array([job.run_time for job in jobs]),
        np.array(outlays),
    )
    assert total.tolist() == pytest.approx([cost.total for cost in each])
    assert is_eligible.tolist() == [cost.is_eligible for cost in each]


GIVERS = st.lists(st.tuples(st.integers(1, 9), st.tuples(st.integers(0, 4), st.integers(0, 4))), max_size=7)


@given(GIVERS, st.tuples(st.integers(-1, 9), st.integers(-1, 9)))
def test_the_cheapest_cover_is_the_least_of_all_sets(
    givers: list[tuple[int, tuple[int, int]]], lacking: tuple[int, int]
) -> None:
    sets = chain.from_iterable(combinations(range(len(givers)), count) for count in range(len(givers) + 1))
    enough = [
        sum(givers[at][0] for at in chosen)
        for chosen in sets
        if all(sum(givers[at][1][k] for at in chosen) >= lacking[k] for k in (0, 1))
    ]
    found = cheapest_cover(lacking, givers)
    assert (found is None) == (not enough)
    if found is not None:
        cost, chosen = found
        assert cost == min(enough) == sum(givers[at][0] for at in chosen)
        assert all(sum(givers[at][1][k] for at in chosen) >= lacking[k] for k in (0, 1))


def test_a_search_cut_short_still_finds_a_cover() -> None:
    givers = [(1.0 + at / 100, (1,)) for at in range(40)]
    found = cheapest_cover((20,), givers, steps=0)
    assert found is not None
    assert len(found[1]) == 20


@given(st.lists(st.integers(0, 9), max_size=7), st.integers(1, 4))
def test_groups_come_by_the_sum_of_their_costs_each_once(costs: list[int], count: int) -> None:
    nodes = [NodeVictims(float(cost), node, ()) for node, cost in enumerate(sorted(costs))]
    found = list(groups_of(iter(nodes), count))
    sums = [sum(one.cost for one in group) for group in found]
    assert sums == sorted(sums)
    assert sorted(tuple(one.node for one in group) for group in found) == list(combinations(range(len(nodes)), count))
