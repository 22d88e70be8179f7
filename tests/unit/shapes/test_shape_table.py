"""The table of shapes: the same in the package, in docs/methods.md, and in what ``make shapes`` tries."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.shapes import publish
from benchmarks.shapes.shape_list import SHAPES
from omfs_daemon.shapes.shape_table import (
    ShapeOutcome,
    ShapeVerdict,
    read_shape_table,
    shape_table,
    shape_table_as_json,
)


def test_every_shape_was_tried_and_is_in_both_tables() -> None:
    table = shape_table()
    titles = [shape.title for shape in SHAPES]
    assert list(table.shapes) == titles
    assert len(set(titles)) == len(titles) >= 40
    assert table.stops >= 10
    page = publish.PAGE.read_text()
    assert page.partition(publish.BEGIN)[2].partition(publish.END)[0] == publish.page_table(table)


def test_nothing_is_lost_without_a_word() -> None:
    lost = [
        (title, method)
        for title, row in shape_table().shapes.items()
        for method in row
        if row[method].verdict is ShapeOutcome.FAULT
    ]
    assert lost == []


def row(
    tool: str, survived: int = 0, unsupported: str = "", faults: tuple[str, ...] = (), **refused: int
) -> dict[str, Any]:
    return {
        "shape": "a",
        "method": "dmtcp",
        "tool": tool,
        "survived": survived,
        "unsupported": unsupported,
        "faults": list(faults),
        "refused": refused,
    }


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row("4", survived=10), row("5", survived=10)], (ShapeOutcome.SURVIVES, "")),
        ([row("4", survived=10), row("5", unfit=10)], (ShapeOutcome.EITHER, "unfit")),
        ([row("4", unfit=10), row("5", unfit=10)], (ShapeOutcome.REFUSED, "unfit")),
        ([row("4", survived=9, faults=("a gap: here",)), row("5", survived=10)], (ShapeOutcome.FAULT, "a gap")),
        ([row("4", unsupported="no"), row("5", unsupported="no")], (ShapeOutcome.UNSUPPORTED, "no")),
        ([row("4", unsupported="no"), row("5", survived=10)], (ShapeOutcome.EITHER, "no")),
    ],
)
def test_the_worst_release_counts(rows: list[dict[str, Any]], expected: tuple[ShapeOutcome, str]) -> None:
    assert publish.verdict(rows) == ShapeVerdict(*expected)


def test_a_shape_that_was_not_tried_is_no_table() -> None:
    with pytest.raises(ValueError, match="a loop, in C: not tried with dmtcp"):
        publish.tabulated([{"stops": 10, "rows": [row("4", survived=10)]}])


def test_the_file_keeps_the_table() -> None:
    table = shape_table()
    assert read_shape_table(shape_table_as_json(table)) == table
