"""Tables that fit the terminal without a broken word: narrower columns, else one block of lines for each row.

rich takes room from the widest column first, and breaks words in it while others could still give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleRenderable, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_BESIDE_A_CELL = 3
"""Columns of the screen that a cell takes beside its text: a space on both sides, and a line."""


def fit_table(console: Console, part: RenderableType) -> RenderableType:
    """A table such that no word in it is broken on this console; anything else as it is."""
    if not isinstance(part, Table) or not part.columns:
        return part
    columns = [[column.header, *column.cells] for column in part.columns]
    if _narrow(console, part, columns, console.width - 1 - _BESIDE_A_CELL * len(columns)):
        return part
    names, *rows = zip(*columns, strict=True)
    title: list[ConsoleRenderable] = [Text(str(part.title), style="italic")] if part.title else []
    return Group(*title, *(part for row in rows for part in (_block(console, names, row), Text(""))))


def share_room(least: Sequence[int], most: Sequence[int], room: int) -> list[int] | None:
    """The widths of columns that together take at most ``room``: each at least ``least`` and, in equal parts while
    there is room, up to ``most``. None if the least are too much."""
    left = room - sum(least)
    if left < 0:
        return None
    widths = list(least)
    by_want = sorted(range(len(least)), key=lambda column: most[column] - least[column])
    for position, column in enumerate(by_want):
        given = min(most[column] - least[column], left // (len(by_want) - position))
        widths[column] += given
        left -= given
    return widths


def _narrow(console: Console, table: Table, columns: Sequence[Iterable[RenderableType]], room: int) -> bool:
    """Give the columns, whose texts are these, widths that fit; False if their longest words do not."""
    needs = [_need(console, column) for column in columns]
    widths = share_room([need.minimum for need in needs], [need.maximum for need in needs], room)
    for column, width in zip(table.columns, widths or (), strict=bool(widths)):
        column.width = width
    return widths is not None


def _need(console: Console, texts: Iterable[RenderableType]) -> Measurement:
    """From the longest word to the longest line of a column."""
    unbounded = console.options.update(width=10_000)
    found = [Measurement.get(console, unbounded, text) for text in texts if text]
    return Measurement(max((one.minimum for one in found), default=1), max((one.maximum for one in found), default=1))


def _block(console: Console, names: Iterable[RenderableType], row: Iterable[RenderableType]) -> Table:
    """A row as lines: what is not empty of it, behind the names of the columns."""
    lines = [(name, text) for name, text in zip(names, row, strict=True) if str(text)]
    block = Table.grid("", "", padding=(0, 2))
    block.columns[0].style = "bold"
    block.columns[1].overflow = "fold"
    for name, text in lines:
        block.add_row(name, text)
    _narrow(console, block, [[name for name, _ in lines], [text for _, text in lines]], console.width - 2)
    return block
