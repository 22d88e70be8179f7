"""From the results of a trial to the table of the package, and to that of docs/methods.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shapes.shape_list import SHAPES
from omfs_daemon.shapes import shape_table
from omfs_daemon.shapes.shape_table import ShapeOutcome, ShapeTable, ShapeVerdict, verdict_text

PACKAGED = Path(shape_table.__file__).with_name(shape_table.FILE)
PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
BEGIN, END = "<!-- shapes: made by `make shapes` -->\n", "<!-- end of shapes -->\n"
_ADDRESS = re.compile(r"@?\b[0-9a-fx]*N[0-9a-fN]*\b")
COLUMNS = ("dmtcp", "criu", "application", "pageout")


def publish(results: Sequence[Mapping[str, Any]]) -> None:
    """Write both tables."""
    table = tabulated(results)
    PACKAGED.write_text(json.dumps(shape_table.shape_table_as_json(table), indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + page_table(table) + END + after)


def tabulated(results: Sequence[Mapping[str, Any]]) -> ShapeTable:
    """One verdict for each shape and method, of all releases tried; ValueError if one is missing."""
    by_key = {(row["shape"], row["method"], row["tool"]): row for one in results for row in one["rows"]}
    rows = list(by_key.values())
    tools: dict[str, dict[str, None]] = {}
    for row in rows:
        tools.setdefault(row["method"], {})[row["tool"]] = None
    shapes = {}
    for shape in SHAPES:
        of_shape = {
            name: [row for row in rows if (row["shape"], row["method"]) == (shape.title, name)] for name in COLUMNS
        }
        if missing := [name for name, found in of_shape.items() if len(found) != len(tools.get(name, "?"))]:
            raise ValueError(f"{shape.title}: not tried with {missing[0]}")
        shapes[shape.title] = {name: verdict(found) for name, found in of_shape.items()}
    return ShapeTable(
        {name: ", ".join(found) for name, found in tools.items()}, min(one["stops"] for one in results), shapes
    )


def verdict(rows: Sequence[Mapping[str, Any]]) -> ShapeVerdict:
    """Of one shape by one method, with all releases that were tried."""
    faults = [fault for row in rows for fault in row["faults"]]
    if faults:
        return ShapeVerdict(ShapeOutcome.FAULT, faults[0].split(": ")[0])
    unsupported = [row["unsupported"] for row in rows if row["unsupported"]]
    reasons = list(dict.fromkeys(_ADDRESS.sub("N", reason) for row in rows for reason in row["refused"]))
    survived = sum(row["survived"] for row in rows)
    if unsupported and len(unsupported) == len(rows):
        return ShapeVerdict(ShapeOutcome.UNSUPPORTED, unsupported[0])
    if reasons or unsupported:
        return ShapeVerdict(ShapeOutcome.EITHER if survived else ShapeOutcome.REFUSED, (reasons + unsupported)[0])
    return ShapeVerdict(ShapeOutcome.SURVIVES, "")


def page_table(table: ShapeTable) -> str:
    """As Markdown."""
    lines = ["| Shape | " + " | ".join(f"`{name}`" for name in COLUMNS) + " |", "| --- " * (len(COLUMNS) + 1) + "|"]
    for title, row in table.shapes.items():
        cells = [verdict_text(row[name]).replace("|", "\\|") for name in COLUMNS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
