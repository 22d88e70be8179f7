"""What each preemption method makes of each shape of program, as ``make shapes`` found it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class ShapeOutcome(StrEnum):
    """What becomes of a shape."""

    SURVIVES = "survives"
    REFUSED = "refused"  # the program runs on
    EITHER = "survives or is refused"
    UNSUPPORTED = "not supported"  # told at the start
    FAULT = "lost"


class ShapeVerdict(NamedTuple):
    """``reason``: why it is refused or not supported, "" otherwise."""

    verdict: ShapeOutcome
    reason: str


class ShapeTable(NamedTuple):
    """``tools``: what each method was tried with, by method; ``shapes``: by title and method, in order."""

    tools: Mapping[str, str]
    stops: int
    shapes: Mapping[str, Mapping[str, ShapeVerdict]]


FILE = "shape_table.json"


@cache
def shape_table() -> ShapeTable:
    """The table of this release."""
    return read_shape_table(json.loads(files(__package__).joinpath(FILE).read_text("utf-8")))


def read_shape_table(raw: Mapping[str, object]) -> ShapeTable:
    """From what ``as_json`` made."""
    found = json.loads(json.dumps(raw))
    return ShapeTable(
        found["tools"],
        found["stops"],
        {
            title: {method: ShapeVerdict(ShapeOutcome(one[0]), one[1]) for method, one in row.items()}
            for title, row in found["shapes"].items()
        },
    )


def shape_table_as_json(table: ShapeTable) -> dict[str, object]:
    """For the file."""
    shapes = {
        title: {method: [one.verdict.value, one.reason] for method, one in row.items()}
        for title, row in table.shapes.items()
    }
    return {"tools": dict(table.tools), "stops": table.stops, "shapes": shapes}


def verdict_text(verdict: ShapeVerdict) -> str:
    """For people."""
    return f"{verdict.verdict.value}: {verdict.reason}" if verdict.reason else verdict.verdict.value
