"""The table of accounts that ``omfs status`` and the demo print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omfs_daemon.terminal.output import cell, table

if TYPE_CHECKING:
    from rich.table import Table

    from omfs_daemon.daemon.api.status_view import AccountView


def account_table(rows: Sequence[AccountView], title: str = "") -> Table:
    """Entitled, used, borrowed, lent and pending CPUs, accounts below their parents."""
    names = ("entitled", "used", "borrowed", "lent", "pending")
    made = table(title, ("account", "%", *names), ("%", *names))
    for depth, row in _by_tree(rows):
        made.add_row(
            cell("  " * depth + row["account"]),
            f"{row['percent']:g}" if (cpus := row.get("cpus")) is None else f"{cpus} CPUs",
            str(row["entitled"]),
            str(row["used"]),
            cell(row["borrowed"] or "", "yellow"),
            cell(row["lent"] or "", "cyan"),
            cell(row["pending"] or ""),
        )
    return made


def _by_tree(rows: Sequence[AccountView], parent: str = "", depth: int = 0) -> Iterator[tuple[int, AccountView]]:
    known = {row["account"] for row in rows}
    for row in rows:
        above = row["parent"] if row["parent"] in known else ""
        if above == parent:
            yield depth, row
            if row["account"]:
                yield from _by_tree(rows, row["account"], depth + 1)
