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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from omfs_daemon.cluster.jobs import Hold, Job, JobState, Share
from omfs_daemon.cluster.snapshot import Commitment
from omfs_daemon.methods.registry import STOP_METHODS
from omfs_daemon.policy.queue import STOPPED_MARK, is_held_by_us
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.slurm.orders import Order


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
    """For whom. ``*_before`` is what an undo restores."""

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


@dataclass(frozen=True, slots=True)
class VictimState:
    """Who is stopped. ``start`` tells this run of the job from a later one."""

    ref: str
    account: str
    user: str
    method: str
    cpus: int
    start: float


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

    def commitment(self) -> Commitment:
        return Commitment(
            self.beneficiary.ref,
            self.beneficiary.account,
            self.beneficiary.shares,
            frozenset(victim.ref for victim in self.victims),
            self.beneficiary.urgent,
        )

    @property
    def refs(self) -> tuple[str, ...]:
        return (self.beneficiary.ref, *(victim.ref for victim in self.victims))


class View(Protocol):
    """What is seen of the cluster now."""

    def job(self, ref: str) -> Job | None:
        """The job, also one task of an array that waits as a whole; None if Slurm lists it no longer."""

    def fit_together(self, jobs: Sequence[Job]) -> set[str]:
        """Which of these suspended jobs could run on side by side now: the first ones first."""


class Limits(NamedTuple):
    """Seconds that victims may take to let go, and that the beneficiary may take to start."""

    stop: float
    start: float


# -- the next state --------------------------------------------------------------------------------------
def next_state(stop: Stop, view: View, now: float, limits: Limits, is_fresh: bool) -> Stop:
    """The state that follows from what is seen; the same object if nothing follows yet.

    ``is_fresh``: the gate let this stop pass on a picture that is still good. After a crash, an outage, or too long a
    time it is not: then nobody is stopped any more who still runs, and the policy decides anew.
    """
    match stop.step:
        case Step.PLANNED:
            unchanged = is_fresh and _still_as_planned(stop, view)
            return _enter(stop, Step.PREPARING, now) if unchanged else _enter(stop, Step.UNDONE, now, Outcome.CHANGED)
        case Step.PREPARING:
            if stop.refused:
                return _enter(stop, Step.UNDOING, now, Outcome.REFUSED)
            return _enter(stop, Step.STOPPING, now) if is_fresh else _enter(stop, Step.UNDOING, now, Outcome.TOO_OLD)
        case Step.STOPPING:
            return _after_stopping(stop, view, now, limits, is_fresh)
        case Step.STARTING:
            return _after_starting(stop, view, now, limits)
        case Step.RETURNING:
            return stop if _is_anything_to_return(stop, view) else _enter(stop, Step.DONE, now)
        case Step.UNDOING:
            return stop if _is_anything_to_undo(stop, view) else _enter(stop, Step.UNDONE, now)
    return stop


def _enter(stop: Stop, step: Step, now: float, outcome: Outcome | None = None) -> Stop:
    return replace(stop, step=step, since=now, outcome=outcome or stop.outcome)


def _still_as_planned(stop: Stop, view: View) -> bool:
    job = view.job(stop.beneficiary.ref)
    wanted = JobState.SUSPENDED if stop.beneficiary.suspended else JobState.PENDING
    return job is not None and job.state is wanted and all(_runs_still(v, view) for v in stop.victims)


def _runs_still(victim: VictimState, view: View) -> bool:
    """Whether this very run of the victim goes on; a later run is not to be stopped again."""
    job = view.job(victim.ref)
    return job is not None and job.runs and job.start == victim.start


def _has_let_go(victim: VictimState, view: View) -> bool:
    job = view.job(victim.ref)
    if job is None or (job.start is not None and job.start != victim.start and job.runs):
        return True
    return STOP_METHODS[victim.method].has_let_go(job)


def _after_stopping(stop: Stop, view: View, now: float, limits: Limits, is_fresh: bool) -> Stop:
    if all(_has_let_go(victim, view) for victim in stop.victims):
        return _enter(stop, Step.STARTING, now)
    if any(_runs_still(v, view) for v in stop.victims if v.ref in dict(stop.refused)):
        return _enter(stop, Step.UNDOING, now, Outcome.REFUSED)
    if not is_fresh and any(_runs_still(victim, view) for victim in stop.victims):
        return _enter(stop, Step.UNDOING, now, Outcome.TOO_OLD)
    if now - stop.since > limits.stop:
        return _enter(stop, Step.UNDOING, now, Outcome.VICTIM_STAYED)
    return stop


def _after_starting(stop: Stop, view: View, now: float, limits: Limits) -> Stop:
    job = view.job(stop.beneficiary.ref)
    if job is None:
        return _enter(stop, Step.RETURNING, now, Outcome.BENEFICIARY_GONE)
    if job.holds_cpus:
        return replace(_enter(stop, Step.RETURNING, now, Outcome.STARTED), started_at=now)
    if now - stop.since > limits.start:
        return _enter(stop, Step.UNDOING, now, Outcome.NOT_STARTED)
    return stop


# -- the orders of a state ----------------------------------------------------------------------------------
def orders_for(stop: Stop, view: View) -> list[Order]:
    """What is still missing for the present step."""
    match stop.step:
        case Step.PREPARING:
            return _prepare(stop, view)
        case Step.STOPPING:
            return [*_beneficiary_first(stop, view), *_stop_running(stop, view), *_keep_stopped(stop, view)]
        case Step.STARTING:
            return [*_beneficiary_first(stop, view), *_keep_stopped(stop, view), *_resume_beneficiary(stop, view)]
        case Step.RETURNING:
            return [*_bring_back(stop, view)]
        case Step.UNDOING:
            return [*_restore_beneficiary(stop, view), *_bring_back(stop, view)]
    return []


def _prepare(stop: Stop, view: View) -> list[Order]:
    """Mark the victims as ours; put the beneficiary first and let it go, on its nodes only."""
    mark = orders.Comment(tuple(victim.ref for victim in stop.victims), _mark(stop))
    return [mark, *_beneficiary_first(stop, view)]


def _beneficiary_first(stop: Stop, view: View) -> list[Order]:
    """What the waiting beneficiary still lacks. A hold that somebody else set meanwhile is left alone."""
    beneficiary = stop.beneficiary
    job = view.job(beneficiary.ref)
    if job is None or beneficiary.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    nodes = tuple(share.node for share in beneficiary.shares)
    if job.request.required_nodes != frozenset(nodes):
        wanted.append(orders.Pin(beneficiary.ref, nodes))
    if job.nice != beneficiary.nice:
        wanted.append(orders.SetNice((beneficiary.ref,), beneficiary.nice))
    if is_held_by_us(job):
        wanted.append(orders.Release((beneficiary.ref,)))
    return wanted


def _mark(stop: Stop) -> str:
    kind = "urgent" if stop.beneficiary.urgent else "entitled"
    return f"{STOPPED_MARK} for job {stop.beneficiary.ref} ({kind}, account {stop.beneficiary.account})"


def _stop_running(stop: Stop, view: View) -> list[Order]:
    wanted: list[Order] = []
    for name, method in STOP_METHODS.items():
        running = [v.ref for v in stop.victims if v.method == name and _runs_still(v, view)]
        if running:
            wanted += method.stop(running)
    return wanted


def _keep_stopped(stop: Stop, view: View) -> list[Order]:
    wanted: list[Order] = []
    for victim in stop.victims:
        job = view.job(victim.ref)
        if job is not None:
            wanted += STOP_METHODS[victim.method].keep_stopped(job)
    return wanted


def orders_after_stopping(stop: Stop) -> list[Order]:
    """To be given right behind the orders that stop the victims, if Slurm took them all.

    A suspended beneficiary runs on before anybody else is given the CPUs: Slurm has taken a stopped job off its
    books when it has taken the order, and starts nobody on a node until that job has left.
    """
    return [orders.Resume((stop.beneficiary.ref,))] if stop.beneficiary.suspended else []


def _resume_beneficiary(stop: Stop, view: View) -> list[Order]:
    job = view.job(stop.beneficiary.ref)
    if not stop.beneficiary.suspended or job is None or job.state is not JobState.SUSPENDED:
        return []
    return [orders.Resume((job.ref,))] if view.fit_together([job]) else []


def _bring_back(stop: Stop, view: View) -> list[Order]:
    """Requeued victims get their turn again. Suspended ones wait for free CPUs under the policy's eye, except in
    an undo, where the CPUs that nobody took are given back at once."""
    wanted: list[Order] = []
    found = [(victim, view.job(victim.ref)) for victim in stop.victims]
    suspended = [job for _, job in found if job is not None and job.state is JobState.SUSPENDED]
    fitting = view.fit_together(suspended) if stop.step is Step.UNDOING else set()
    for victim, job in found:
        if job is not None:
            wanted += STOP_METHODS[victim.method].bring_back(job, job.ref in fitting)
    return wanted


def _restore_beneficiary(stop: Stop, view: View) -> list[Order]:
    beneficiary = stop.beneficiary
    job = view.job(beneficiary.ref)
    if job is None or beneficiary.suspended or job.state is not JobState.PENDING:
        return []
    wanted: list[Order] = []
    if beneficiary.held_before and job.hold is Hold.NONE:
        wanted.append(orders.Hold((job.ref,)))
    if set(job.request.required_nodes) != set(beneficiary.required_before):
        wanted.append(orders.Pin(job.ref, beneficiary.required_before))
    if job.nice != beneficiary.nice_before:
        wanted.append(orders.SetNice((job.ref,), beneficiary.nice_before))
    return wanted


def _is_anything_to_return(stop: Stop, view: View) -> bool:
    return bool(_bring_back(stop, view)) or _is_any_on_its_way(stop, view)


def _is_anything_to_undo(stop: Stop, view: View) -> bool:
    return bool(_restore_beneficiary(stop, view) or _bring_back(stop, view)) or _is_any_on_its_way(stop, view)


def _is_any_on_its_way(stop: Stop, view: View) -> bool:
    """A victim that is still COMPLETING will be held as soon as it is done: it must not be forgotten then."""
    jobs = (view.job(victim.ref) for victim in stop.victims)
    return any(job is not None and job.state is JobState.COMPLETING for job in jobs)


def absorb(stop: Stop, refusals: Iterable[Refusal]) -> Stop:
    """Note what Slurm refused in this step."""
    found = tuple((refusal.ref, refusal.message) for refusal in refusals)
    return replace(stop, refused=(*stop.refused, *found)) if found else stop
