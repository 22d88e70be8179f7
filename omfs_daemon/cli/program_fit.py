"""``omfs methods fit --pid``: the shapes of a running program, and what each method makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omfs_daemon.errors import ConfigError
from omfs_daemon.shapes.recognize import Recognized, recognized_shapes
from omfs_daemon.shapes.shape_table import ShapeOutcome, ShapeTable, ShapeVerdict, shape_table, verdict_text
from omfs_daemon.terminal.output import cell, table

if TYPE_CHECKING:
    from rich.console import RenderableType

_HARMLESS = ShapeVerdict(ShapeOutcome.SURVIVES, "")
_ORDER = (
    ShapeOutcome.FAULT,
    ShapeOutcome.UNSUPPORTED,
    ShapeOutcome.REFUSED,
    ShapeOutcome.EITHER,
    ShapeOutcome.SURVIVES,
)
"""Worst first."""


def shapes_of(pid: int) -> list[Recognized]:
    """ConfigError if there is no such process, or if it must not be looked at."""
    folder = Path("/proc") / str(pid)
    if pid < 1 or not folder.exists():
        raise ConfigError(f"--pid {pid}: there is no such process on this node")
    try:
        next((folder / "fd").iterdir(), None)
    except OSError as error:
        raise ConfigError(f"--pid {pid}: {error.strerror}: only its owner and root may look at it") from None
    return recognized_shapes(pid)


def by_method(found: Sequence[Recognized], known: ShapeTable) -> dict[str, tuple[ShapeVerdict, str]]:
    """For each method the worst of its verdicts, and the shape that it comes from ("" if all survive)."""
    worst = {}
    for method in known.tools:
        verdicts = [(known.shapes[one.shape][method], one.shape) for one in found]
        verdict, shape = min(verdicts, key=lambda pair: _ORDER.index(pair[0].verdict), default=(_HARMLESS, ""))
        worst[method] = (verdict, "" if verdict.verdict is ShapeOutcome.SURVIVES else shape)
    return worst


def program_fit_table(pid: int, found: Sequence[Recognized]) -> Iterator[RenderableType]:
    """For people."""
    known = shape_table()
    if found:
        made = table(
            f"What process {pid} and its descendants have, and what becomes of it", ("shape", "of", *known.tools)
        )
        for one in found:
            row = known.shapes[one.shape]
            made.add_row(one.shape, cell(one.where), *(cell(verdict_text(row[method])) for method in known.tools))
        yield made
    else:
        yield f"process {pid} has nothing that could be lost, as far as /proc shows"
    for method, (verdict, shape) in by_method(found, known).items():
        yield cell(f"{method} ({known.tools[method]}): {verdict_text(verdict)}{f' ({shape})' if shape else ''}")
    yield "This is how it is now, and /proc does not show everything: docs/methods.md has all shapes."


def program_fit_as_json(pid: int, found: Sequence[Recognized]) -> dict[str, object]:
    """For scripts."""
    known = shape_table()
    shapes = [
        {
            "shape": one.shape,
            "where": one.where,
            "methods": {
                method: {"verdict": verdict.verdict.value, "reason": verdict.reason}
                for method, verdict in known.shapes[one.shape].items()
            },
        }
        for one in found
    ]
    worst = {
        method: {"verdict": verdict.verdict.value, "reason": verdict.reason, "shape": shape}
        for method, (verdict, shape) in by_method(found, known).items()
    }
    return {"pid": pid, "shapes": shapes, "methods": worst}
