"""One stop as a state machine: jobs are stopped, so that one beneficiary starts, and come back afterwards.

    PLANNED -> PREPARING -> STOPPING -> STARTING -> RETURNING -> DONE
                   \\____________\\__________\\____-> UNDOING -> UNDONE

Pure: what is seen and the time go in, the next state and the orders come out. The daemon writes each state to
the journal *before* it gives that state's orders. ``orders_for`` returns what is still missing for the state, so
giving them again after a crash, a time-out or a lost message does no harm.

Beneficiary first: it is ranked, pinned and let go before its victims are stopped, for freed CPUs are given away
within a tenth of a second (Slurm schedules at once when a job ends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Job, Share
from omfs_daemon.cluster.methods import SUSPEND, Method
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.methods.base import Licenses, Progress, Seen, StopMethod
from omfs_daemon.methods.missing import method_of
from omfs_daemon.nodes.work import WorkSeen
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


class View(Protocol):
    """What is seen of the cluster now."""

    def job(self, ref: str) -> Job | None:
        """The job, also one task of an array that waits as a whole; None if Slurm lists it no longer."""

    def work(self, ref: str) -> WorkSeen | None:
        """What was last done on the job's nodes; None if this daemon had nothing done there."""

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could run on side by side now: the first ones first."""


class Means(NamedTuple):
    """What a stop is carried out by.

    ``methods`` by name; ``stop``: seconds that a victim may take to let go, ``stop_by`` method where they differ;
    ``start``: seconds that the beneficiary may take to start.
    """

    methods: Mapping[str, StopMethod]
    stop: float
    start: float
    stop_by: Mapping[str, float] = {}

    def method(self, victim: VictimState) -> StopMethod:
        return method_of(self.methods, victim.method)

    def is_moved_in(self, beneficiary: Beneficiary) -> bool:
        """Whether its memory is out, so that its nodes have to bring it in before it is resumed."""
        return beneficiary.suspended and method_of(self.methods, beneficiary.method).traits.on_nodes

    def moves_in_first(self, stop: Stop) -> bool:
        """Whether its memory is moved in before anybody lets go, so that nobody else gets the CPUs meanwhile. A device
        whose memory a victim holds to its very end has no room before."""
        beneficiary = stop.beneficiary
        has_room = not beneficiary.lacks_devices or all(self.method(v).traits.on_nodes for v in stop.victims)
        return self.is_moved_in(beneficiary) and has_room

    def moving(self, beneficiary: Beneficiary) -> float:
        """Seconds that moving it in may take."""
        return self.stop_by.get(beneficiary.method, self.stop) if self.is_moved_in(beneficiary) else 0.0

    def start_limit(self, beneficiary: Beneficiary) -> float:
        return self.start + self.moving(beneficiary)

    def stop_limit(self, victim: VictimState) -> float:
        return self.stop_by.get(victim.method, self.stop)

    def is_careful(self, victim: VictimState) -> bool:
        """Whether its stop takes its time and may fail: then those that lose work or come back at once wait for it."""
        return self.method(victim).traits.is_careful

    def patience(self, stop: Stop) -> float:
        """Seconds until all careful victims are safe and the beneficiary is moved in, at most; 0 without any."""
        careful = max((self.stop_limit(v) for v in stop.victims if self.is_careful(v)), default=0.0)
        return careful + self.moving(stop.beneficiary)


def runs_still(victim: VictimState, view: View) -> bool:
    """Whether this very run of the victim goes on; a later run is not to be stopped again."""
    job = view.job(victim.ref)
    return job is not None and job.runs and job.start == victim.start


def progress_of(victim: VictimState, view: View, means: Means) -> Progress:
    """How far its stop is; a job that is gone, or runs for another time, has let go."""
    job = view.job(victim.ref)
    if job is None or (job.start is not None and job.start != victim.start and job.runs):
        return Progress.STOPPED
    return means.method(victim).progress(seen_of(victim, job, view))


def seen_of(victim: VictimState, job: Job, view: View) -> Seen:
    return Seen(job, view.work(job.ref), victim.keeps, victim.failed_before)


def absorb(stop: Stop, refusals: Iterable[Refusal]) -> Stop:
    """Note what Slurm refused in this step."""
    found = tuple((refusal.ref, refusal.message) for refusal in refusals)
    return replace(stop, refused=(*stop.refused, *found)) if found else stop
