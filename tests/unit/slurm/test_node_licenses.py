"""Licenses as generic resources of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Allocation, Job, JobRequest, JobState
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.gateway import LicenseRow
from omfs_daemon.slurm.node_licenses import LicenseCount, NodeLicense, NodeLicenses

VE = NodeLicense("ve_{node}", "devices", any="ve")
MEM = NodeLicense("mem_{node}", "memory")
NODES = [Node("n1", 4, 8 << 30, gres=(("gpu", 1),)), Node("n2", 4, 8 << 30), Node("n3", 4, 8 << 30)]
N1, N2 = Allocation("n1", 1, 0), Allocation("n2", 1, 0)
NO_LICENSES = ()


def rows(**used: int) -> list[LicenseRow]:
    totals = {"ve_n1": 2, "ve_n2": 2, "mem_n1": 8, "ve": 9999, "fluent": 5}
    return [LicenseRow(name, total, used.get(name, 0)) for name, total in totals.items()]


def job(number: int = 1, *licenses: tuple[str, int], allocations: tuple[Allocation, ...] = (), **what: object) -> Job:
    state = what.pop("state", JobState.RUNNING if allocations else JobState.PENDING)
    request = what.pop("request", JobRequest(1))
    return Job(number, str(number), "u", 1, "a", state, request, 0.0, allocations=allocations, licenses=licenses)  # type: ignore[arg-type]


@pytest.fixture
def node_licenses() -> NodeLicenses:
    return NodeLicenses([VE, MEM])


def translated(node_licenses: NodeLicenses, *jobs: Job, **used: int) -> tuple[list[Job], dict[str, dict[str, int]]]:
    found, nodes = node_licenses.with_node_licenses(jobs, NODES, rows(**used))
    return found, {node.name: dict(node.gres) for node in nodes}


def test_nodes_have_what_slurm_conf_says(node_licenses: NodeLicenses) -> None:
    _, gres = translated(node_licenses)
    assert gres == {"n1": {"devices/ve": 2, "memory/mem": 8, "gpu": 1}, "n2": {"devices/ve": 2}, "n3": {}}


def test_a_waiting_job_asks_for_it_on_the_node_that_its_license_names(node_licenses: NodeLicenses) -> None:
    (found,), _ = translated(
        node_licenses, job(1, ("fluent", 1), ("ve_n1", 1), request=JobRequest(1, gres=(("gpu", 1),)))
    )
    assert found.request.gres == (("devices/ve", 1), ("gpu", 1))
    assert found.request.required_nodes == {"n1"}
    assert found.licenses == (("fluent", 1), ("ve_n1", 1))


@pytest.mark.parametrize(
    ("licenses", "reason"), [([("ve_n1", 1), ("mem_n1", 2)], "Resources"), ([("ve_n1", 1), ("fluent", 1)], "Licenses")]
)
def test_short_of_node_licenses_alone_a_job_waits_for_resources(
    node_licenses: NodeLicenses, licenses: list[tuple[str, int]], reason: str
) -> None:
    (found,), _ = translated(node_licenses, replace(job(1, *licenses), reason="Licenses"))
    assert found.reason == reason


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING])
def test_a_job_that_holds_it_has_it_on_its_node_and_no_new_required_one(
    node_licenses: NodeLicenses, state: JobState
) -> None:
    (found,), gres = translated(node_licenses, job(1, ("ve_n1", 1), allocations=(N1,), state=state), ve_n1=1)
    assert (found.request.gres, found.request.required_nodes) == ((("devices/ve", 1),), frozenset())
    assert gres["n1"]["devices/ve"] == 2


def test_what_is_held_of_a_node_by_a_job_elsewhere_is_not_there_for_others(node_licenses: NodeLicenses) -> None:
    (found,), gres = translated(node_licenses, job(1, ("ve_n1", 1), allocations=(N2,)), ve_n1=1)
    assert found.request.gres == ()
    assert (gres["n1"]["devices/ve"], gres["n2"]["devices/ve"]) == (1, 2)


def test_what_is_held_by_nobody_that_we_see_is_not_there_for_others(node_licenses: NodeLicenses) -> None:
    _, gres = translated(node_licenses, job(1, ("ve_n1", 1), allocations=(N1,)), ve_n1=5, mem_n1=3)
    assert (gres["n1"]["devices/ve"], gres["n1"]["memory/mem"]) == (0, 5)


def test_what_jobs_hold_beyond_what_there_is_keeps_the_total(node_licenses: NodeLicenses) -> None:
    jobs = [job(number, ("ve_n1", 2), allocations=(N1,)) for number in (1, 2)]
    _, gres = translated(node_licenses, *jobs, ve_n1=4)
    assert gres["n1"]["devices/ve"] == 2


def test_on_any_node_it_is_asked_for_in_equal_parts(node_licenses: NodeLicenses) -> None:
    waiting, wide = job(1, ("ve", 1)), job(2, ("ve", 3), request=JobRequest(4, nodes=2, max_nodes=2))
    found, _ = translated(node_licenses, waiting, wide)
    assert [one.request.gres for one in found] == [(("devices/ve", 1),), (("devices/ve", 2),)]
    assert all(one.request.required_nodes == frozenset() for one in found)


def test_of_different_counts_on_several_nodes_the_most_counts(node_licenses: NodeLicenses) -> None:
    (found,), _ = translated(node_licenses, job(1, ("ve_n1", 2), ("ve_n2", 1), request=JobRequest(2, nodes=2)))
    assert (found.request.gres, found.request.required_nodes) == ((("devices/ve", 2),), {"n1", "n2"})


@pytest.mark.parametrize("licenses", [(), (("fluent", 1),), (("ve_n9", 1),), (("ve_n1:1|ve_n2:1", 1),)])
def test_other_licenses_leave_a_job_as_it_is(
    node_licenses: NodeLicenses, licenses: tuple[tuple[str, int], ...]
) -> None:
    what = job(1, *licenses)
    (found,), _ = translated(node_licenses, what)
    assert found is what


def test_what_did_not_change_gives_the_same_objects(node_licenses: NodeLicenses) -> None:
    jobs = [job(1), job(2, ("ve_n1", 1)), job(3, ("ve_n1", 1), allocations=(N1,))]
    first = node_licenses.with_node_licenses(jobs, NODES, rows(ve_n1=1))
    second = node_licenses.with_node_licenses(list(jobs), list(NODES), rows(ve_n1=1))
    for before, after in zip(first, second, strict=True):
        assert all(one is other for one, other in zip(before, after, strict=True))
    assert first[0][0] is jobs[0] and first[1][2] is NODES[2]


def test_a_changed_job_and_other_nodes_are_translated_anew(node_licenses: NodeLicenses) -> None:
    translated(node_licenses, job(1, ("ve_n1", 1)))
    (found,), _ = translated(node_licenses, job(1, ("ve_n1", 2)))
    assert found.request.gres == (("devices/ve", 2),)
    waiting = job(1, ("ve_n4", 1))
    assert node_licenses.with_node_licenses([waiting], NODES, rows())[0] == [waiting]
    (found,), _ = node_licenses.with_node_licenses([waiting], [*NODES, Node("n4", 4, 1)], rows())
    assert found.request.required_nodes == {"n4"}


def test_without_node_licenses_nothing_is_changed() -> None:
    what = job(1, ("ve_n1", 1))
    jobs, nodes = NodeLicenses([]).with_node_licenses([what], NODES, rows())
    assert jobs[0] is what and nodes == NODES


def test_a_chosen_node_makes_any_into_its_own(node_licenses: NodeLicenses) -> None:
    asked = (("fluent", 1), ("ve", 3), ("ve_n2", 1))
    assert node_licenses.placed(asked, ["n1", "n2"]) == (("fluent", 1), ("ve_n1", 2), ("ve_n2", 3))
    assert node_licenses.placed(asked, []) == asked
    assert node_licenses.placed((), ["n1"]) == NO_LICENSES


def test_what_is_given_up_is_of_the_kinds_that_are_freed(node_licenses: NodeLicenses) -> None:
    held = (("fluent", 1), ("mem_n1", 3), ("ve_n1", 1), ("ve_n2", 1))
    assert node_licenses.without(held, {"devices"}, ["n1"]) == (("fluent", 1), ("mem_n1", 3), ("ve_n2", 1))
    assert node_licenses.without(held, {"devices", "memory"}, ["n1", "n2"]) == (("fluent", 1),)
    assert node_licenses.without(held, (), ["n1"]) == held


@pytest.mark.parametrize("license", ["ve", "", "{node}", "_{node}", "{node}_{node}"])
def test_a_node_license_needs_a_name_and_a_node(license: str) -> None:
    with pytest.raises(ValueError, match="is a name with"):
        NodeLicense(license, "devices")


def test_two_node_licenses_for_one_resource_are_refused() -> None:
    with pytest.raises(ValueError, match="two node licenses for devices/ve"):
        NodeLicenses([VE, NodeLicense("{node}_ve", "devices")])


@given(
    st.lists(st.tuples(st.sampled_from(["ve_n1", "ve_n2"]), st.integers(1, 2), st.sampled_from([N1, N2])), max_size=6)
)
def test_what_the_policy_may_hand_out_is_never_more_than_slurm_has(held: list[tuple[str, int, Allocation]]) -> None:
    used = {name: sum(count for other, count, _ in held if other == name) for name in ("ve_n1", "ve_n2")}
    jobs = [
        job(number, (name, count), allocations=(allocation,)) for number, (name, count, allocation) in enumerate(held)
    ]
    found, gres = translated(NodeLicenses([VE]), *jobs, **used)
    for node in ("n1", "n2"):
        taken = sum(dict(one.request.gres).get("devices/ve", 0) for one in found if one.on_nodes == (node,))
        assert gres[node]["devices/ve"] - taken <= max(0, 2 - used[f"ve_{node}"])


def test_licenses_are_counted_over_all_nodes(node_licenses: NodeLicenses) -> None:
    assert node_licenses.counts == ()
    translated(node_licenses, ve_n1=3, ve_n2=1, mem_n1=8, ve=4, fluent=9)
    assert node_licenses.counts == (LicenseCount("devices/ve", 4, 4, 1), LicenseCount("memory/mem", 8, 8, 0))
