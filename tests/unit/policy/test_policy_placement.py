"""Where a request fits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.cluster.snapshot import Ledger
from omfs_daemon.policy.arrays.capacity import Capacity
from omfs_daemon.policy.arrays.placement import place
from omfs_daemon.policy.arrays.placement import serves
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from tests.unit.policy.policy_builders import GB
from tests.unit.policy.policy_builders import commitment
from tests.unit.policy.policy_builders import nodes
from tests.unit.policy.policy_builders import request
from tests.unit.policy.policy_builders import running
from tests.unit.policy.policy_builders import snapshot
from tests.unit.policy.policy_builders import suspended
from tests.unit.policy.policy_builders import waiting


def where(
    asks: Request, machine: list[Node], jobs: Iterable[Job] = (), ledger: Ledger | None = None, **partition: object
) -> dict[str, int] | None:
    capacity = Capacity(Scene(snapshot(machine, jobs, **partition)), ledger or Ledger())
    shares = place(asks, capacity.now)
    assert shares is None or serves(asks, capacity.now, shares)
    return None if shares is None else {share.node: share.cpus for share in shares}


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
    asleep = suspended(1, asks=request(1, memory_per_node=10))
    assert where(request(4, memory_per_node=6), nodes(1), [asleep]) == {"n0": 4}
    assert where(request(1, memory_per_node=7), nodes(1), [asleep]) is None


def test_generic_resources_by_type_and_in_sum() -> None:
    machine = nodes(1, gres=(("gpu", 4), ("gpu:a100", 2), ("gpu:v100", 2)))
    typed = running(1, asks=request(1, gres=(("gpu:a100", 2),)))
    assert where(request(1, gres=(("gpu", 3),)), machine, [typed]) is None
    assert where(request(1, gres=(("gpu", 2),)), machine, [typed]) == {"n0": 1}
    assert where(request(1, gres=(("gpu:v100", 2),)), machine, [typed]) == {"n0": 1}
    some = running(1, asks=request(1, gres=(("gpu", 1),)))
    assert where(request(1, gres=(("gpu:v100", 2),)), machine, [some]) is None  # it may have taken that type
    assert where(request(1, gres=(("fpga", 1),)), machine) is None


def test_exclusive_jobs_take_whole_empty_nodes() -> None:
    assert where(request(1, exclusive=True), nodes(2), [running(1)]) == {"n1": 4}
    assert where(request(5, exclusive=True, max_nodes=0), nodes(2)) == {"n0": 4, "n1": 4}
    assert where(request(1), nodes(1), exclusive=True) == {"n0": 4}
    asleep = suspended(1, asks=request(1, memory_per_node=1))
    assert where(request(1, exclusive=True), nodes(1), [asleep]) is None


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
    machine = [replace(nodes(1)[0], up=False), *nodes(2)[1:]]
    assert where(request(1), machine) == {"n1": 1}
    assert where(request(1, features="ve"), [*nodes(1), replace(nodes(2)[1], features=frozenset({"ve"}))]) == {"n1": 1}


def test_slurms_own_books_are_believed_where_they_say_less() -> None:
    assert where(request(2), [replace(nodes(1)[0], cpus_taken=3)]) is None
    assert where(request(4), [replace(nodes(1)[0], cpus_taken=0)], [running(1)]) is None


def test_victims_still_there_are_idle_later_but_not_now() -> None:
    ledger = Ledger(commitments=(commitment("9", "bio", [("n0", 3)], "1"),))
    seen = snapshot(nodes(1), [running(1, cpus=4), waiting(9, cpus=3)])
    capacity = Capacity(Scene(seen), ledger)
    assert capacity.now.total == 0 and capacity.then.total == 1
    gone = Capacity(Scene(snapshot(nodes(1), [waiting(1, cpus=4), waiting(9, cpus=3)])), ledger)
    assert gone.now.total == gone.then.total == 1  # the beneficiary's three are not lent meanwhile
    there = Capacity(Scene(snapshot(nodes(1), [running(9, cpus=3)])), ledger)
    assert there.now.total == there.then.total == 1
    asleep = suspended(1, asks=request(4, memory_per_node=16))
    assert Capacity(Scene(snapshot(nodes(1), [asleep])), ledger).then.memory[0] == 0 * GB
