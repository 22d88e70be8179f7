"""The fields of jobs that we have set, as the journal knows them: their values, and what was there before us.

As with Kubernetes' field managers, a field that somebody else changes is judged by three values: as we want it, as we
set it, as it is (``preemption/reconcile.py``). Holds carry a mark in Slurm (``cluster/marks.py``); the journal knows
which jobs it has held and released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from omfs_daemon.slurm.gateway import Licenses

NOBODY = ""

Value = int | tuple[str, ...]


class JobField(StrEnum):
    """NICE: a number; NODES: the required nodes (ReqNodeList), sorted; LICENSES: what a pending job requests, as texts,
    "fluent:2"; KEPT_LICENSES: what a job keeps of them while it is preempted."""

    NICE = "nice"
    NODES = "nodes"
    LICENSES = "licenses"
    KEPT_LICENSES = "kept_licenses"


@dataclass(frozen=True, slots=True)
class OwnedField:
    """``value``: as we set it last; ``baseline``: the value of others that comes back when nobody wants ours any more;
    ``wanted_by``: the preemption or rule, NOBODY once nobody wants it and ``baseline`` comes back; ``since``: when that
    began."""

    value: Value
    baseline: Value
    wanted_by: str
    since: float


def licenses_value(licenses: Licenses) -> tuple[str, ...]:
    """Names and counts as a value."""
    return tuple(f"{name}:{count}" for name, count in licenses)


def licenses_of(value: Value) -> tuple[tuple[str, int], ...]:
    """The names and counts of such a value."""
    return tuple((name, int(count)) for name, _, count in (text.rpartition(":") for text in _texts(value)))


def nodes_of(value: Value) -> tuple[str, ...]:
    """The node names of a value of ``JobField.NODES``."""
    return tuple(_texts(value))


def _texts(value: Value) -> Iterable[str]:
    if isinstance(value, int):
        raise TypeError(f"not a list of names: {value}")
    return value
