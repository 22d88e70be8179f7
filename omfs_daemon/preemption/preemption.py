"""One preemption as data: steps, outcome, preemptor, victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from omfs_daemon.cluster.jobs import Share
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.preempt_methods import Method
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.preemption.methods.base import Licenses
from omfs_daemon.slurm.gateway import Refusal


class Step(StrEnum):
    """What is being done now (or was, when the daemon died)."""

    PLANNED = "planned"
    PREPARING = "preparing"
    STOPPING = "stopping"
    STARTING = "starting"
    RETURNING = "returning"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"

    @property
    def is_over(self) -> bool:
        return self in (Step.DONE, Step.UNDONE)


class Outcome(StrEnum):
    """How a stop ended; the label in metrics and history."""

    STARTED = "started"
    BENEFICIARY_GONE = "beneficiary_gone"
    NOT_STARTED = "not_started_in_time"
    VICTIM_STAYED = "victim_did_not_stop"
    REFUSED = "refused_by_slurm"
    CHANGED = "situation_changed"
    TOO_OLD = "decision_too_old"


@dataclass(frozen=True, slots=True)
class Beneficiary:
    """For whom. ``*_before`` is what an undo restores; ``licenses``: what it must ask for on its nodes (None: what it
    asks for already); ``method``: by which a suspended one was stopped itself; ``lacks_devices``: whether victims have
    devices that it must get back."""

    ref: str
    account: str
    user: str
    urgent: bool
    suspended: bool
    submitted: float
    shares: tuple[Share, ...]
    nice: int
    nice_before: int
    held_before: bool
    required_before: tuple[str, ...]
    licenses: Licenses | None = None
    licenses_before: Licenses = ()
    method: str = SUSPEND.name
    lacks_devices: bool = False


@dataclass(frozen=True, slots=True)
class VictimState:
    """Who is stopped, and how; ``start`` tells this run of the job from a later one.

    ``last_resort``: the method that its class allows when this one fails, "" if it is then left running;
    ``failed_before``: as in ``Seen``; ``licenses``: what it has, ``keeps``: what of that it keeps while it is stopped
    (None: all), ``gres``: what it gives up so on each node.
    """

    ref: str
    account: str
    user: str
    method: str
    cpus: int
    start: float
    last_resort: str = ""
    failed_before: int = 0
    licenses: Licenses = ()
    keeps: Licenses | None = None
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop; ``since`` is when its present step began, ``refused`` what Slurm would not do.

    ``started_at`` is when the beneficiary was first *seen* running: Slurm's own start time is in whole seconds.
    """

    id: int
    step: Step
    begun: float
    since: float
    reason: str
    beneficiary: Beneficiary
    victims: tuple[VictimState, ...]
    started_at: float | None = None
    outcome: Outcome | None = None
    refused: tuple[tuple[str, str], ...] = ()

    def commitment(self, ways: Mapping[str, Method]) -> Commitment:
        return Commitment(
            self.beneficiary.ref,
            self.beneficiary.account,
            self.beneficiary.shares,
            frozenset(victim.ref for victim in self.victims),
            self.beneficiary.urgent,
            {victim.ref: ways[victim.method] for victim in self.victims if victim.method in ways},
        )

    @property
    def refs(self) -> tuple[str, ...]:
        return (self.beneficiary.ref, *(victim.ref for victim in self.victims))


def absorb(stop: Stop, refusals: Iterable[Refusal]) -> Stop:
    """Note what Slurm refused in this step."""
    found = tuple((refusal.ref, refusal.message) for refusal in refusals)
    return replace(stop, refused=(*stop.refused, *found)) if found else stop
