"""References of array tasks: what scontrol takes, in parts that fit into a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omfs_daemon.cluster.job_refs import brief_ref, first_task, share_tasks, split_ref, task_ids_of, tasks_ref

TASKS = st.sets(st.integers(0, 4_000_000), min_size=1, max_size=60)


@given(TASKS)
def test_a_reference_names_exactly_its_tasks_and_has_no_steps(tasks: set[int]) -> None:
    ref = tasks_ref(7, tasks)
    assert ref.startswith("7_")
    assert ":" not in ref
    assert task_ids_of(ref.removeprefix("7_").strip("[]")) == tasks


@given(TASKS, st.integers(30, 200))
def test_the_parts_of_a_reference_name_the_same_tasks(tasks: set[int], most: int) -> None:
    parts = split_ref(tasks_ref(7, tasks), most)
    assert all(len(part) <= most for part in parts)
    found = [task_ids_of(part.removeprefix("7_").strip("[]")) for part in parts]
    assert set().union(*found) == tasks
    assert sum(map(len, found)) == len(tasks)


@pytest.mark.parametrize("ref", ["7", "7_3", "7_[1-5]"])
def test_a_short_reference_stays_as_it_is(ref: str) -> None:
    assert split_ref(ref, 30) == [ref]
    assert brief_ref(ref) == ref
    assert first_task(ref) == ref.replace("[1-5]", "1")


def test_a_long_reference_is_brief_for_people() -> None:
    ref = tasks_ref(7, range(1, 60_000, 2))
    assert brief_ref(ref).startswith("7_[1,3,5,")
    assert brief_ref(ref).endswith(",...]")
    assert len(brief_ref(ref)) < 80


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("7", "7", True),
        ("7", "7_3", False),
        ("7_3", "7_[1-5]", True),
        ("7_[1,3]", "7_[2,4-9]", False),
        ("7_[1-9]", "8_[1-9]", False),
        ("7_99", "7_[1,3,...]", True),
        ("7_[4-6]", "7_4-5", True),
        ("7_[1,3]", "7_0-8:2", False),
        ("7_[1,3]", "7_*", False),
        ("7_[1,3]", "7_,,", False),
    ],
)
def test_what_two_references_have_in_common(one: str, other: str, share: bool) -> None:
    assert share_tasks(one, other) is share
    assert share_tasks(other, one) is share


@pytest.mark.parametrize("listed", ["", "x", "1-", "1-x", "1:2", "1-5:0", "99999999", "0-99999999", "²", "1,,2"])
def test_what_is_no_list_of_tasks_is_an_error(listed: str) -> None:
    with pytest.raises(ValueError, match="not a list of array tasks"):
        task_ids_of(listed)


def test_a_list_that_counts_downward_names_nothing() -> None:
    assert task_ids_of("5-1") == set()
