"""Where a request fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.cluster.jobs import Job, JobRequest
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import PreemptionHistory
from omfs_daemon.policy.arrays.capacity import Capacity
from omfs_daemon.policy.arrays.placement import place, serves
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from tests.support.policy_builders import GB, nodes, request, running, snapshot, suspended, under_way, waiting


def where(
    wanted: JobRequest,
    node_arrays: list[Node],
    jobs: Iterable[Job] = (),
    history: PreemptionHistory | None = None,
    **partition: object,
) -> dict[str, int] | None:
    capacity = Capacity(SnapshotArrays(snapshot(node_arrays, jobs, **partition)), history or PreemptionHistory())
    allocations = place(wanted, capacity.now)
    assert allocations is None or serves(wanted, capacity.now, allocations)
    return None if allocations is None else {allocation.node: allocation.cpus for allocation in allocations}


def test_one_node_takes_the_fullest_that_fits() -> None:
    jobs = [running(1, cpus=1, on="n0"), running(2, cpus=2, on="n1")]
    assert where(request(2), nodes(3), jobs) == {"n1": 2}
    assert where(request(4), nodes(3), jobs) == {"n2": 4}
    assert where(request(5), nodes(3), jobs) is None


def test_several_nodes_share_evenly() -> None:
    assert where(request(8, nodes=2), nodes(2)) == {"n0": 4, "n1": 4}
    assert where(request(5, nodes=2), nodes(2), [running(1, cpus=2, on="n0")]) == {"n1": 3, "n0": 2}
    assert where(request(6, nodes=2), nodes(2), [running(1, cpus=2, on="n0")]) is None


def test_an_open_number_of_nodes_may_be_uneven() -> None:
    jobs = [running(1, cpus=3, on="n0"), running(2, cpus=1, on="n1")]
    assert where(request(8, max_nodes=0), nodes(3), jobs) == {"n2": 4, "n1": 3, "n0": 1}
    assert where(request(8, max_nodes=2), nodes(3), jobs) is None
    assert where(request(5, max_nodes=0, min_cpus_per_node=2), nodes(2)) == {"n0": 3, "n1": 2}
    assert where(request(5, max_nodes=0, min_cpus_per_node=3), nodes(2)) is None


def test_memory() -> None:
    assert where(request(2, memory_per_cpu=8), nodes(1)) == {"n0": 2}
    assert where(request(3, memory_per_cpu=8), nodes(1)) is None
    suspended_job = suspended(1, request=request(1, memory_per_node=10))
    assert where(request(4, memory_per_node=6), nodes(1), [suspended_job]) == {"n0": 4}
    assert where(request(1, memory_per_node=7), nodes(1), [suspended_job]) is None


def test_generic_resources_by_type_and_in_sum() -> None:
    node_arrays = nodes(1, gres=(("gpu", 4), ("gpu:a100", 2), ("gpu:v100", 2)))
    typed = running(1, request=request(1, gres=(("gpu:a100", 2),)))
    assert where(request(1, gres=(("gpu", 3),)), node_arrays, [typed]) is None
    assert where(request(1, gres=(("gpu", 2),)), node_arrays, [typed]) == {"n0": 1}
    assert where(request(1, gres=(("gpu:v100", 2),)), node_arrays, [typed]) == {"n0": 1}
    some = running(1, request=request(1, gres=(("gpu", 1),)))
    assert where(request(1, gres=(("gpu:v100", 2),)), node_arrays, [some]) is None  # it may have taken that type
    assert where(request(1, gres=(("fpga", 1),)), node_arrays) is None


def test_exclusive_jobs_take_whole_empty_nodes() -> None:
    assert where(request(1, exclusive=True), nodes(2), [running(1)]) == {"n1": 4}
    assert where(request(5, exclusive=True, max_nodes=0), nodes(2)) == {"n0": 4, "n1": 4}
    assert where(request(1), nodes(1), exclusive=True) == {"n0": 4}
    suspended_job = suspended(1, request=request(1, memory_per_node=1))
    assert where(request(1, exclusive=True), nodes(1), [suspended_job]) is None


def test_named_nodes() -> None:
    assert where(request(1, required_nodes=frozenset({"n1"})), nodes(3)) == {"n1": 1}
    assert where(request(4, nodes=2, required_nodes=frozenset({"n2"})), nodes(3)) == {"n2": 2, "n0": 2}
    assert where(request(4, required_nodes=frozenset({"n1", "n2"})), nodes(3)) == {"n1": 2, "n2": 2}
    assert where(request(1, required_nodes=frozenset({"nowhere"})), nodes(3)) is None
    assert where(request(6, max_nodes=0, required_nodes=frozenset({"n2"})), nodes(3)) == {"n2": 4, "n0": 2}
    assert where(request(8, nodes=2, excluded_nodes=frozenset({"n0"})), nodes(3)) == {"n1": 4, "n2": 4}


def test_partitions_features_and_states() -> None:
    assert where(request(1, partitions=("other",)), nodes(1)) is None
    assert where(request(1, partitions=("other", "main")), nodes(1)) == {"n0": 1}
    assert where(request(1), nodes(1), up=False) is None
    node_arrays = [replace(nodes(1)[0], up=False), *nodes(2)[1:]]
    assert where(request(1), node_arrays) == {"n1": 1}
    assert where(request(1, features="ve"), [*nodes(1), replace(nodes(2)[1], features=frozenset({"ve"}))]) == {"n1": 1}


def test_slurms_own_count_is_used_where_less_is_free() -> None:
    assert where(request(2), [replace(nodes(1)[0], cpus_taken=3)]) is None
    assert where(request(4), [replace(nodes(1)[0], cpus_taken=0)], [running(1)]) is None


def test_victims_still_there_are_idle_later_but_not_now() -> None:
    history = PreemptionHistory(under_way=(under_way("9", "bio", [("n0", 3)], "1"),))
    seen = snapshot(nodes(1), [running(1, cpus=4), waiting(9, cpus=3)])
    capacity = Capacity(SnapshotArrays(seen), history)
    assert capacity.now.total == 0 and capacity.then.total == 1
    gone = Capacity(SnapshotArrays(snapshot(nodes(1), [waiting(1, cpus=4), waiting(9, cpus=3)])), history)
    assert gone.now.total == gone.then.total == 1  # the preemptor's three are not lent meanwhile
    there = Capacity(SnapshotArrays(snapshot(nodes(1), [running(9, cpus=3)])), history)
    assert there.now.total == there.then.total == 1
    suspended_job = suspended(1, request=request(4, memory_per_node=16))
    assert Capacity(SnapshotArrays(snapshot(nodes(1), [suspended_job])), history).then.memory[0] == 0 * GB
