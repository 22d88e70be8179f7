"""Orders that slurmctld may not have saved yet, as the journal keeps them (``preemption.restart``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verb(StrEnum):
    """Orders that slurmctld may forget."""

    REQUEUE = "requeue"
    SUSPEND = "suspend"
    RESUME = "resume"
    RELEASE = "release"


ANY_BOOT = ""
"""Of an order of which the next cycle notes which slurmctld has carried it out."""


@dataclass(frozen=True, slots=True)
class UnsavedOrder:
    """An order that slurmctld may not have saved yet. ``id``: the job's raw id; ``start``: of the run that it
    concerned; ``boot``: when that slurmctld had started, as it says itself; ``is_released``: the job's hold was ended
    then, or since."""

    verb: Verb
    id: int
    start: float | None
    boot: str
    at: float
    is_released: bool = False
