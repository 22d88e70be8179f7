"""Tables as CSV files that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path

from omfs_daemon.simulate.results.result_files import save

_FORMULA = ("=", "+", "-", "@")

Value = str | int | float | bool | None


def printable(text: str) -> str:
    """Without control and direction characters: what a user called a job."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def harmless(text: str) -> str:
    """Printable, and not the beginning of a formula."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def csv_value(value: Value) -> str:
    """Empty for None and for numbers that are none; yes and no for truth."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case float():
            return f"{value:.12g}" if isfinite(value) else ""
    return harmless(value)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
    """One line a row; ConfigError if it cannot be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([csv_value(value) for value in row] for row in rows)
    save(path, lambda file: file.write(text.getvalue().encode()))
