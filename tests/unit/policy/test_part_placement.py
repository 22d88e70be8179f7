"""Where the parts of a heterogeneous job fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Allocation, JobRequest
from omfs_daemon.cluster.nodes import Node, Partition
from omfs_daemon.policy.arrays.free_resources import FreeResources, of_parts
from omfs_daemon.policy.arrays.node_arrays import NodeArrays
from omfs_daemon.policy.arrays.placement import place, serves

GB = 1 << 30
NODES = {
    "n1": Node("n1", 4, 8 * GB, gres=(("gpu", 2),)),
    "n2": Node("n2", 4, 8 * GB),
    "n3": Node("n3", 4, 8 * GB),
    "big": Node("big", 8, 64 * GB),
}
PARTITIONS = {
    "main": Partition("main", frozenset(NODES)),
    "small": Partition("small", frozenset({"n2", "n3"})),
}


def free_of(cpus: dict[str, int] | None = None) -> FreeResources:
    arrays = NodeArrays(NODES, PARTITIONS)
    free = np.array([(cpus or {}).get(name, NODES[name].cpus) for name in arrays.names], dtype=np.int64)
    gres = {name: counts.copy() for name, counts in arrays.gres.items()}
    return FreeResources(arrays, free, arrays.memory.copy(), gres, Counter())


def het(*parts: JobRequest) -> JobRequest:
    parts = tuple(replace(part, partitions=part.partitions or ("main",)) for part in parts)
    return JobRequest(sum(part.cpus for part in parts), nodes=sum(part.nodes for part in parts), parts=parts)


def placed(request: JobRequest, free: FreeResources) -> list[tuple[str, int]] | None:
    found = place(request, free)
    if found is not None:
        assert serves(request, free, found)
    return None if found is None else [(allocation.node, allocation.cpus) for allocation in found]


def test_each_part_gets_nodes_of_its_own() -> None:
    assert placed(het(JobRequest(1), JobRequest(1)), free_of({"n2": 2, "n3": 3})) == [("n2", 1), ("n3", 1)]
    assert placed(het(*[JobRequest(1)] * 4), free_of()) is not None
    assert placed(het(*[JobRequest(1)] * 5), free_of()) is None


def test_a_part_does_not_take_the_only_node_of_another() -> None:
    assert placed(het(JobRequest(1), JobRequest(8)), free_of({"n1": 0, "n2": 0, "n3": 4})) == [("n3", 1), ("big", 8)]
    large = het(JobRequest(1), JobRequest(1, memory_per_node=32 * GB))
    assert placed(large, free_of({"n1": 0, "n2": 0, "big": 1})) == [("n3", 1), ("big", 1)]
    chain = het(JobRequest(2), JobRequest(2, partitions=("small",)), JobRequest(2, gres=(("gpu", 1),)))
    assert placed(chain, free_of({"n3": 0, "big": 2})) == [("big", 2), ("n2", 2), ("n1", 2)]


def test_parts_of_several_nodes_and_whole_ones() -> None:
    assert placed(het(JobRequest(6, nodes=2), JobRequest(1, exclusive=True)), free_of({"n1": 3})) is not None
    assert placed(het(JobRequest(6, nodes=3), JobRequest(1, exclusive=True)), free_of({"n1": 3, "big": 7})) is not None
    assert placed(het(JobRequest(6, nodes=3), JobRequest(1, exclusive=True)), free_of({"n1": 3, "n2": 1})) is None
    (whole,) = placed(het(JobRequest(1, exclusive=True)), free_of({"big": 7})) or []
    assert whole[1] == 4
    wide = JobRequest(6, partitions=("small",))
    assert placed(het(wide, JobRequest(1)), free_of()) == [("n2", 3), ("n3", 3), ("n1", 1)], "on two nodes"
    assert placed(het(replace(wide, max_nodes=1), JobRequest(1)), free_of()) is None


def test_nodes_that_a_part_requires() -> None:
    wanted = frozenset({"n3"})
    assert placed(het(JobRequest(1, required_nodes=wanted), JobRequest(4)), free_of({"n2": 4, "n1": 0, "big": 0})) == [
        ("n3", 1),
        ("n2", 4),
    ]
    both = JobRequest(1, required_nodes=wanted)
    assert placed(het(both, both), free_of()) is None


def test_only_on_some_nodes() -> None:
    request, free = het(JobRequest(1), JobRequest(1)), free_of()
    found = place(request, free, only=free.node_arrays.indices_of(["n2", "big"]))
    assert found is not None and {one.node for one in found} == {"n2", "big"}
    assert place(request, free, only=free.node_arrays.indices_of(["n2"])) is None


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (Allocation("n1", 1, 0),),
        (Allocation("n1", 1, 0), Allocation("n1", 1, 0)),
        (Allocation("n1", 1, 0), Allocation("n1", 1, 0), Allocation("n2", 1, 0)),
        (Allocation("n2", 1, 0), Allocation("n3", 9, 0)),
    ],
)
def test_what_does_not_serve(wrong: tuple[Allocation, ...]) -> None:
    assert not serves(het(JobRequest(1), JobRequest(2)), free_of(), wrong)


def test_generic_resources_count_where_the_part_is() -> None:
    free = free_of()
    gpus = (("gpu", 2),)
    taken = of_parts(free.node_arrays, [([Allocation("n2", 1, 0)], ()), ([Allocation("n1", 1, 0)], gpus)])
    assert free.has(taken)
    free.take(taken)
    assert not free.has(taken)
    at = free.node_arrays.index
    assert (free.gres["gpu"][at["n1"]], free.gres["gpu"][at["n2"]], free.cpus[at["n2"]]) == (0, 0, 3)
    free.give(taken)
    assert free.gres["gpu"][at["n1"]] == 2


counts = st.dictionaries(st.sampled_from(list(NODES)), st.integers(0, 8), max_size=4)
single = st.builds(
    JobRequest,
    cpus=st.integers(1, 5),
    partitions=st.sampled_from([("main",), ("small",)]),
    gres=st.sampled_from([(), (("gpu", 1),)]),
)


@given(counts, st.lists(single, min_size=2, max_size=3))
def test_it_finds_a_placement_where_there_is_one_and_more_room_does_no_harm(
    cpus: dict[str, int], parts: list[JobRequest]
) -> None:
    """For parts of one node each, beside all ways to give each its own."""
    cpus = {name: min(count, NODES[name].cpus) for name, count in cpus.items()}
    parts = [replace(part, max_nodes=1) for part in parts]
    free = free_of(cpus)
    each = [{node for node in NODES if place(part, free, only=free.node_arrays.indices_of([node]))} for part in parts]
    exists = any(
        all(node in fits for node, fits in zip(order, each, strict=True))
        for nodes in combinations(NODES, len(parts))
        for order in permutations(nodes)
    )
    assert (placed(het(*parts), free) is not None) is exists
    if exists:
        assert placed(het(*parts), free_of({name: min(count + 1, NODES[name].cpus) for name, count in cpus.items()}))
