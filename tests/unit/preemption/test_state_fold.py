"""What the journal's records add up to: however many jobs are known, a record takes no longer."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest

from omfs_daemon.preemption.job_numbers import JobNumbers
from omfs_daemon.preemption.state import Record, State, VictimBackoff, WholeState
from omfs_daemon.preemption.state_fold import StateFold, state_after
from tests.unit.daemon.test_journal import RECORDS


def mappings_of(value: Any) -> list[dict[Any, Any]]:
    """Also those of what is in it."""
    if isinstance(value, dict):
        return [value]
    inner = [getattr(value, field.name) for field in fields(value)] if hasattr(value, "__dataclass_fields__") else []
    return [found for one in inner for found in mappings_of(one)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_copies_no_mapping_of_jobs(record: Record) -> None:
    fold = StateFold(State(held={"5": 3, "6_[1-3]": 4}, releasing={"4": 2}))
    before = mappings_of(replace(fold.state, pause=None))
    fold.add(record)
    after = mappings_of(replace(fold.state, pause=None))
    assert len(after) == len(before) > 15
    assert all(one is other for one, other in zip(after, before, strict=True))


def test_the_state_before_stays_as_it_was() -> None:
    state = State()
    for number in range(len(RECORDS)):
        before = deepcopy(state)
        after = state_after(state, RECORDS[number : number + 1])
        assert state == before
        state = after
    assert state == state_after(State(), RECORDS) == state_after(State(), [WholeState(state)])
    whole = deepcopy(state)
    state_after(State(), [WholeState(state), *RECORDS])
    assert state == whole


def test_a_victim_that_is_spared_for_a_while_has_not_failed() -> None:
    state = state_after(State(), [VictimBackoff("8", 300.0, 0)])
    assert (state.spared, state.failures) == ({"8": 300.0}, {})
    before = state_after(State(), [VictimBackoff("8", 100.0, 2), VictimBackoff("8", 300.0, 0)])
    assert (before.spared, before.failures) == ({"8": 300.0}, {"8": 2})


def test_without_records_nothing_is_copied() -> None:
    state = State()
    assert state_after(state, []) is state


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        (["7"], {"8": 2, "6_[1-3]": 3, "6_9": 4, "66_1": 5}),
        (["6_2"], {"7": 1, "8": 2, "6_[1,3]": 3, "6_9": 4, "66_1": 5}),
        (["6_[1-2]", "6_3"], {"7": 1, "8": 2, "6_9": 4, "66_1": 5}),
        (["6_[2-9]", "8"], {"7": 1, "6_1": 3, "66_1": 5}),
        (["6", "9"], {"7": 1, "8": 2, "6_[1-3]": 3, "6_9": 4, "66_1": 5}),
    ],
)
def test_tasks_that_are_not_named_keep_their_number(gone: list[str], left: dict[str, int]) -> None:
    numbers = {"7": 1, "8": 2, "6_[1-3]": 3, "6_9": 4, "66_1": 5}
    changed = JobNumbers(numbers)
    changed.leave_out(gone)
    assert numbers == left
    changed.leave_out(["6_[1-9]"])
    assert not any(ref.startswith("6_") for ref in numbers), "what was divided is known by its array, too"
