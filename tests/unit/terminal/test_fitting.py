"""Tables on narrow terminals: no word is broken, no time stamp cut, nothing is left out."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from omfs_daemon.cli.history import costs_table, history_table
from omfs_daemon.cli.plan import plan_table
from omfs_daemon.cli.status import status_table
from omfs_daemon.cli.why import why_table
from omfs_daemon.daemon.api.plan_view import PlanView
from omfs_daemon.terminal.fitting import fit_table, share_room
from omfs_daemon.terminal.output import cell, table, when
from tests.unit.cli.test_cli import HISTORY, PLAN, STATUS, WHY

TIME = 1_780_000_000.0


def printed(parts: Iterable[RenderableType], width: int) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=width, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(fit_table(console, part))
    return screen.getvalue()


def wide_views() -> dict[str, list[RenderableType]]:
    """What an operator may see on a bad day, anew for each print."""
    victims = [
        {"job": f"10_[{first}-{first + 7}]", "account": "astrophysics", "method": "application", "preempted": True}
        for first in (1, 9, 17)
    ]
    row = {**HISTORY["preemptions"][0], "time": TIME, "account": "computational-chemistry", "victims": victims}
    action = {**PLAN["actions"][0], "account": "computational-chemistry", "victims": victims}
    start = {"job": "15_[25-32]", "p50": TIME, "p90": TIME + 60}
    event = {**WHY["events"][0], "time": TIME, "text": "was preempted for job 9, which its account is entitled to"}
    cost = {
        **{"time": TIME, "job": "1000001", "user": "alexandra", "account": "computational-chemistry"},
        **{"method": "application", "direction": "out", "seconds": 12.0, "moving_seconds": 8.0},
        **{"bytes": 3_000_000_000, "lost_seconds": 1.0},
    }
    preempted = [{"job": "10_[1-8]", "method": "application", "since": TIME, "for": "9"}]
    account = {**STATUS["accounts"][1], "account": "computational-chemistry", "borrowed": 1, "lent": 2, "pending": 3}
    status = {**STATUS, "accounts": [account], "preempted": preempted}
    return {
        "status": list(status_table(status)),  # type: ignore[arg-type]
        "plan": list(plan_table({**PLAN, "actions": [action], "start_estimate": [start]})),  # type: ignore[typeddict-item]
        "why": list(why_table({**WHY, "events": [event]})),  # type: ignore[typeddict-item]
        "history": list(history_table({"preemptions": [row]})),  # type: ignore[list-item, typeddict-item]
        "costs": list(costs_table({"costs": [cost]})),  # type: ignore[list-item, typeddict-item]
    }


def test_tasks_that_start_at_the_same_time_share_a_row() -> None:
    times: list[tuple[str, float | None]] = [("5_2", TIME), ("5_3", None), ("5_4", None), ("6", None), ("7", None)]
    starts = [{"job": job, "p50": time, "p90": time} for job, time in [*times, ("5_5", None)]]
    shown = printed(plan_table({**PLAN, "start_estimate": starts}), 160).partition("Will start")[2]  # type: ignore[typeddict-item]
    rows = [
        line.replace("│", " ").split()[0]
        for line in shown.splitlines()
        if "2026" in line or "not within 35 days" in line
    ]
    assert rows == ["5_2", "5_[3-4]", "6", "7", "5_5"], shown


def test_a_plan_without_anything_of_ones_own_says_so() -> None:
    nothing: PlanView = {"time": TIME, "summary": "", "actions": [], "refused": []}
    said = "nothing is planned for your jobs now"
    assert printed(plan_table(nothing), 160).strip() == said
    assert printed(plan_table({**nothing, "start_estimate": []}), 160).strip() == said
    assert "nothing" not in printed(plan_table({**nothing, "actions": PLAN["actions"]}), 160)


def words(text: str) -> set[str]:
    return {word for line in text.splitlines() for word in line.replace("│", " ").replace("┃", " ").split()}


@pytest.mark.parametrize("name", sorted(wide_views()))
@pytest.mark.parametrize("width", [80, 60, 40])
def test_every_word_of_a_wide_screen_is_whole_on_a_narrow_one(name: str, width: int) -> None:
    narrow = printed(wide_views()[name], width)
    assert max(map(len, narrow.splitlines())) <= width
    drawn = {word for word in words(printed(wide_views()[name], 400)) if any(char.isalnum() for char in word)}
    assert {word for word in drawn if len(word) < width} <= words(narrow)


def test_a_time_stamp_is_one_word() -> None:
    assert len(when(TIME).split()) == 1 and len(when(TIME)) == 19


def test_without_room_each_row_is_a_block_without_empty_cells() -> None:
    made = table("Held jobs", ("job", "why", "account"))
    made.add_row(cell("15_[25-32]"), cell(""), cell("computational-chemistry"))
    made.add_row(cell("16"), cell("waits"), cell("bio"))
    lines = [line.rstrip() for line in printed([made], 36).splitlines()]
    assert lines == [
        "Held jobs",
        "job      15_[25-32]",
        "account  computational-chemistry",
        "",
        "job      16",
        "why      waits",
        "account  bio",
        "",
    ]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60)), min_size=1, max_size=8), st.integers(0, 300))
def test_columns_share_the_room(needs: list[tuple[int, int]], room: int) -> None:
    least, most = [one for one, _ in needs], [one + more for one, more in needs]
    widths = share_room(least, most, room)
    if widths is None:
        assert sum(least) > room
        return
    assert all(one <= width <= all_of_it for one, width, all_of_it in zip(least, widths, most, strict=True))
    assert sum(widths) == min(room, sum(most)), "no room is left while a line would be broken"
