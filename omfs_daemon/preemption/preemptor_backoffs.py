"""For which jobs nobody is preempted for a while, as data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


class Unstarted(NamedTuple):
    """A job that Slurm does not start: its shape (``shape_of``) and Slurm's reason then. ``in_vain``: others were
    preempted for it, and none are again until one of these has changed."""

    shape: str
    reason: str
    in_vain: bool


class ShapeBackoff(NamedTuple):
    """``times``: in a row that preemptions for jobs of a shape failed, last at ``since``; none begins before
    ``until``."""

    shape: str
    until: float
    times: int
    since: float


@dataclass(frozen=True, slots=True)
class PreemptorBackoffs:
    """``until``: by job, when others may be preempted for it again; ``unstarted``: why Slurm does not start it.
    ``shapes``: by shape."""

    until: dict[str, float] = field(default_factory=dict)
    unstarted: dict[str, Unstarted] = field(default_factory=dict)
    shapes: dict[str, ShapeBackoff] = field(default_factory=dict)

    def add(self, ref: str, until: float, shape: ShapeBackoff | None, unstarted: Unstarted | None) -> PreemptorBackoffs:
        return PreemptorBackoffs(
            {**self.until, ref: until},
            {**self.unstarted, ref: unstarted} if unstarted is not None else self.unstarted,
            {**self.shapes, shape.shape: shape} if shape is not None else self.shapes,
        )

    def without(self, refs: Collection[str], shapes: Collection[str] = ()) -> PreemptorBackoffs:
        return PreemptorBackoffs(
            {ref: until for ref, until in self.until.items() if ref not in refs},
            {ref: why for ref, why in self.unstarted.items() if ref not in refs},
            {shape: one for shape, one in self.shapes.items() if shape not in shapes},
        )
