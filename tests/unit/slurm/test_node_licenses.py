"""Licences as generic resources of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.jobs import Request
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.slurm.node_licenses import Book
from omfs_daemon.slurm.node_licenses import Books
from omfs_daemon.slurm.gateway import LicenceRow

VE = Book("ve_{node}", "devices", any="ve")
MEM = Book("mem_{node}", "memory")
NODES = [Node("n1", 4, 8 << 30, gres=(("gpu", 1),)), Node("n2", 4, 8 << 30), Node("n3", 4, 8 << 30)]
N1, N2 = Share("n1", 1, 0), Share("n2", 1, 0)
NO_LICENCES = ()


def rows(**used: int) -> list[LicenceRow]:
    totals = {"ve_n1": 2, "ve_n2": 2, "mem_n1": 8, "ve": 9999, "fluent": 5}
    return [LicenceRow(name, total, used.get(name, 0)) for name, total in totals.items()]


def job(number: int = 1, *licenses: tuple[str, int], shares: tuple[Share, ...] = (), **what: object) -> Job:
    state = what.pop("state", JobState.RUNNING if shares else JobState.PENDING)
    request = what.pop("request", Request(1))
    return Job(number, str(number), "u", 1, "a", state, request, 0.0, shares=shares, licenses=licenses)  # type: ignore[arg-type]


@pytest.fixture
def books() -> Books:
    return Books([VE, MEM])


def translated(books: Books, *jobs: Job, **used: int) -> tuple[list[Job], dict[str, dict[str, int]]]:
    found, nodes = books.with_books(jobs, NODES, rows(**used))
    return found, {node.name: dict(node.gres) for node in nodes}


def test_nodes_have_what_slurm_conf_says(books: Books) -> None:
    _, gres = translated(books)
    assert gres == {"n1": {"devices/ve": 2, "memory/mem": 8, "gpu": 1}, "n2": {"devices/ve": 2}, "n3": {}}


def test_a_waiting_job_asks_for_it_on_the_node_that_its_licence_names(books: Books) -> None:
    (found,), _ = translated(books, job(1, ("fluent", 1), ("ve_n1", 1), request=Request(1, gres=(("gpu", 1),))))
    assert found.request.gres == (("devices/ve", 1), ("gpu", 1))
    assert found.request.required_nodes == {"n1"}
    assert found.licenses == (("fluent", 1), ("ve_n1", 1))


@pytest.mark.parametrize(
    ("licenses", "reason"), [([("ve_n1", 1), ("mem_n1", 2)], "Resources"), ([("ve_n1", 1), ("fluent", 1)], "Licenses")]
)
def test_short_of_the_books_alone_a_job_waits_for_resources(
    books: Books, licenses: list[tuple[str, int]], reason: str
) -> None:
    (found,), _ = translated(books, replace(job(1, *licenses), reason="Licenses"))
    assert found.reason == reason


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING])
def test_a_job_that_holds_it_has_it_on_its_node_and_no_new_required_one(books: Books, state: JobState) -> None:
    (found,), gres = translated(books, job(1, ("ve_n1", 1), shares=(N1,), state=state), ve_n1=1)
    assert (found.request.gres, found.request.required_nodes) == ((("devices/ve", 1),), frozenset())
    assert gres["n1"]["devices/ve"] == 2


def test_what_is_held_of_a_node_by_a_job_elsewhere_is_not_there_for_others(books: Books) -> None:
    (found,), gres = translated(books, job(1, ("ve_n1", 1), shares=(N2,)), ve_n1=1)
    assert found.request.gres == ()
    assert (gres["n1"]["devices/ve"], gres["n2"]["devices/ve"]) == (1, 2)


def test_what_is_held_by_nobody_that_we_see_is_not_there_for_others(books: Books) -> None:
    _, gres = translated(books, job(1, ("ve_n1", 1), shares=(N1,)), ve_n1=5, mem_n1=3)
    assert (gres["n1"]["devices/ve"], gres["n1"]["memory/mem"]) == (0, 5)


def test_what_jobs_hold_beyond_what_there_is_keeps_the_total(books: Books) -> None:
    jobs = [job(number, ("ve_n1", 2), shares=(N1,)) for number in (1, 2)]
    _, gres = translated(books, *jobs, ve_n1=4)
    assert gres["n1"]["devices/ve"] == 2


def test_on_any_node_it_is_asked_for_in_equal_parts(books: Books) -> None:
    waiting, wide = job(1, ("ve", 1)), job(2, ("ve", 3), request=Request(4, nodes=2, max_nodes=2))
    found, _ = translated(books, waiting, wide)
    assert [one.request.gres for one in found] == [(("devices/ve", 1),), (("devices/ve", 2),)]
    assert all(one.request.required_nodes == frozenset() for one in found)


def test_of_different_counts_on_several_nodes_the_most_counts(books: Books) -> None:
    (found,), _ = translated(books, job(1, ("ve_n1", 2), ("ve_n2", 1), request=Request(2, nodes=2)))
    assert (found.request.gres, found.request.required_nodes) == ((("devices/ve", 2),), {"n1", "n2"})


@pytest.mark.parametrize("licenses", [(), (("fluent", 1),), (("ve_n9", 1),), (("ve_n1:1|ve_n2:1", 1),)])
def test_other_licences_leave_a_job_as_it_is(books: Books, licenses: tuple[tuple[str, int], ...]) -> None:
    what = job(1, *licenses)
    (found,), _ = translated(books, what)
    assert found is what


def test_what_did_not_change_gives_the_same_objects(books: Books) -> None:
    jobs = [job(1), job(2, ("ve_n1", 1)), job(3, ("ve_n1", 1), shares=(N1,))]
    first = books.with_books(jobs, NODES, rows(ve_n1=1))
    second = books.with_books(list(jobs), list(NODES), rows(ve_n1=1))
    for before, after in zip(first, second, strict=True):
        assert all(one is other for one, other in zip(before, after, strict=True))
    assert first[0][0] is jobs[0] and first[1][2] is NODES[2]


def test_a_changed_job_and_other_nodes_are_looked_at_anew(books: Books) -> None:
    translated(books, job(1, ("ve_n1", 1)))
    (found,), _ = translated(books, job(1, ("ve_n1", 2)))
    assert found.request.gres == (("devices/ve", 2),)
    waiting = job(1, ("ve_n4", 1))
    assert books.with_books([waiting], NODES, rows())[0] == [waiting]
    (found,), _ = books.with_books([waiting], [*NODES, Node("n4", 4, 1)], rows())
    assert found.request.required_nodes == {"n4"}


def test_without_books_nothing_is_touched() -> None:
    what = job(1, ("ve_n1", 1))
    jobs, nodes = Books([]).with_books([what], NODES, rows())
    assert jobs[0] is what and nodes == NODES


def test_a_chosen_node_makes_any_into_its_own(books: Books) -> None:
    asked = (("fluent", 1), ("ve", 3), ("ve_n2", 1))
    assert books.placed(asked, ["n1", "n2"]) == (("fluent", 1), ("ve_n1", 2), ("ve_n2", 3))
    assert books.placed(asked, []) == asked
    assert books.placed((), ["n1"]) == NO_LICENCES


def test_what_is_given_up_is_of_the_kinds_that_are_freed(books: Books) -> None:
    held = (("fluent", 1), ("mem_n1", 3), ("ve_n1", 1), ("ve_n2", 1))
    assert books.without(held, {"devices"}, ["n1"]) == (("fluent", 1), ("mem_n1", 3), ("ve_n2", 1))
    assert books.without(held, {"devices", "memory"}, ["n1", "n2"]) == (("fluent", 1),)
    assert books.without(held, (), ["n1"]) == held


@pytest.mark.parametrize("licence", ["ve", "", "{node}", "_{node}", "{node}_{node}"])
def test_a_book_needs_a_name_and_a_node(licence: str) -> None:
    with pytest.raises(ValueError, match="is a name with"):
        Book(licence, "devices")


def test_two_books_for_one_resource_are_refused() -> None:
    with pytest.raises(ValueError, match="two books for devices/ve"):
        Books([VE, Book("{node}_ve", "devices")])


@given(
    st.lists(st.tuples(st.sampled_from(["ve_n1", "ve_n2"]), st.integers(1, 2), st.sampled_from([N1, N2])), max_size=6)
)
def test_what_the_policy_may_hand_out_is_never_more_than_slurm_has(held: list[tuple[str, int, Share]]) -> None:
    used = {name: sum(count for other, count, _ in held if other == name) for name in ("ve_n1", "ve_n2")}
    jobs = [job(number, (name, count), shares=(share,)) for number, (name, count, share) in enumerate(held)]
    found, gres = translated(Books([VE]), *jobs, **used)
    for node in ("n1", "n2"):
        taken = sum(dict(one.request.gres).get("devices/ve", 0) for one in found if one.on_nodes == (node,))
        assert gres[node]["devices/ve"] - taken <= max(0, 2 - used[f"ve_{node}"])
