"""Carries stops through: writes each step to the journal, then gives its orders, and tells the story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from omfs_daemon.cluster.jobs import Hold, Job, JobState
from omfs_daemon.cluster.methods import METHODS
from omfs_daemon.daemon.journal import Journal
from omfs_daemon.daemon.picture import Picture
from omfs_daemon.daemon.state import JobStopped, Record, Spared, StopChanged, TriedInVain
from omfs_daemon.daemon.stop import (
    Beneficiary,
    Limits,
    Outcome,
    Step,
    Stop,
    VictimState,
    absorb,
    next_state,
    orders_after_stopping,
    orders_for,
)
from omfs_daemon.daemon.story import Event, Story
from omfs_daemon.errors import GatewayError, JournalError
from omfs_daemon.metrics import Metrics
from omfs_daemon.policy.plan import TEXT, Band, Reason, Reclaim
from omfs_daemon.policy.queue import is_held_by_us, nice_in, own_nice
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway, Refusal
from omfs_daemon.slurm.orders import give

DECISION_KEEPS = 30.0
"""Seconds for which the decision to stop somebody holds; after that nobody is stopped on it who still runs."""

_AGAIN_AFTER = 2.0
"""Seconds after which orders that had no visible effect are given once more."""


class Conductor:
    """The stops under way live in the journal's state; this holds only which of them this very process began without
    a fault since, and when orders were last given."""

    def __init__(
        self, gateway: Gateway, journal: Journal, story: Story, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._story = story
        self._metrics = metrics
        self._clock = clock
        self._ordered: dict[int, float] = {}
        self._fresh: set[int] = set()
        self._log = structlog.get_logger("stop")

    # -- beginning ------------------------------------------------------------------------------------------
    def begin(self, reclaim: Reclaim, picture: Picture, limits: Limits, retry_after: float) -> Stop | None:
        """Start a stop that the gate let pass; None if one of its jobs is gone."""
        beneficiary = picture.job(reclaim.beneficiary)
        victims = [picture.job(victim.ref) for victim in reclaim.victims]
        if beneficiary is None or any(victim is None for victim in victims):
            return None
        now = self._clock()
        stop = Stop(
            id=self._journal.state.next_stop,
            step=Step.PLANNED,
            begun=now,
            since=now,
            reason=reclaim.reason.value,
            beneficiary=_beneficiary(reclaim, beneficiary),
            victims=tuple(
                VictimState(v.ref, v.account, job.user, v.method, v.cpus, job.start or 0.0)
                for v, job in zip(reclaim.victims, victims, strict=True)
                if job is not None
            ),
        )
        self._journal.write(StopChanged(stop))
        self._fresh.add(stop.id)
        self._tell_begin(stop)
        return self.advance(stop, picture, limits, retry_after)

    # -- going on -------------------------------------------------------------------------------------------
    def advance(self, stop: Stop, picture: Picture, limits: Limits, retry_after: float) -> Stop:
        """As far as it goes on what is seen. Raises GatewayError or JournalError; the stop then stays at its step, and
        nobody is stopped any more on the old decision."""
        try:
            return self._advance(stop, picture, limits, retry_after)
        except (GatewayError, JournalError):
            self._fresh.discard(stop.id)
            raise

    def _advance(self, stop: Stop, picture: Picture, limits: Limits, retry_after: float) -> Stop:
        while not stop.step.is_over:
            self._note_let_go(stop, picture)
            following = next_state(stop, picture, self._clock(), limits, self._is_fresh(stop))
            if following is stop:
                return self._repeat(stop, picture)
            if following.step.is_over:
                self._tell_end(following)
            self._journal.write(StopChanged(following), *self._consequences(following, retry_after))
            stop = self._order(following, picture)
            if stop.step in (Step.STOPPING, Step.STARTING, Step.RETURNING, Step.UNDOING):
                return stop
        self._ordered.pop(stop.id, None)
        self._fresh.discard(stop.id)
        self._comment_end(stop, picture)
        return stop

    def _is_fresh(self, stop: Stop) -> bool:
        return stop.id in self._fresh and self._clock() - stop.begun <= DECISION_KEEPS

    def _repeat(self, stop: Stop, picture: Picture) -> Stop:
        if self._clock() - self._ordered.get(stop.id, float("-inf")) < _AGAIN_AFTER:
            return stop
        return self._order(stop, picture)

    def _order(self, stop: Stop, picture: Picture) -> Stop:
        """Give the step's orders; what Slurm refuses goes into the record, for the next step depends on it."""
        self._ordered[stop.id] = self._clock()
        refusals = give(self._gateway, orders_for(stop, picture))
        weighty = [refusal for refusal in refusals if self._matters(stop, refusal)]
        for refusal in refusals:
            self._log.info("slurm refused", stop=stop.id, step=stop.step.value, job=refusal.ref, said=refusal.message)
        if stop.step is Step.STOPPING and not weighty:
            give(self._gateway, orders_after_stopping(stop))
        noted = absorb(stop, weighty)
        if noted is not stop:
            self._journal.write(StopChanged(noted))
        return noted

    def _matters(self, stop: Stop, refusal: Refusal) -> bool:
        """In PREPARING what the beneficiary was refused; in STOPPING what a victim was."""
        if stop.step is Step.PREPARING:
            return refusal.ref == stop.beneficiary.ref
        return stop.step is Step.STOPPING and refusal.ref != stop.beneficiary.ref

    def _note_let_go(self, stop: Stop, picture: Picture) -> None:
        """Remember each victim as stopped as soon as it is seen so, whatever becomes of the stop."""
        if stop.step is Step.PLANNED:
            return
        for victim in stop.victims:
            job = picture.job(victim.ref)
            if job is None or victim.ref in self._journal.state.stopped:
                continue
            if job.state in (JobState.PENDING, JobState.SUSPENDED):
                now = self._clock()
                self._journal.write(JobStopped(victim.ref, now, victim.method, stop.beneficiary.ref))
                self._tell_victim(stop, victim, job, now)

    def _consequences(self, stop: Stop, retry_after: float) -> list[Record]:
        """What a stop that did not help teaches: not to try the same again at once."""
        if stop.step is not Step.UNDOING:
            return []
        if stop.outcome is Outcome.TOO_OLD:
            return []
        until = self._clock() + retry_after
        if stop.outcome is Outcome.VICTIM_STAYED or stop.outcome is Outcome.REFUSED:
            victims = {victim.ref for victim in stop.victims}
            stubborn = [ref for ref, _ in stop.refused if ref in victims] or sorted(
                victims - set(self._journal.state.stopped)
            )
            spared: list[Record] = [Spared(ref, until) for ref in stubborn]
            return spared or [TriedInVain(stop.beneficiary.ref, until)]
        return [TriedInVain(stop.beneficiary.ref, until)]

    # -- telling ----------------------------------------------------------------------------------------------
    def _tell_begin(self, stop: Stop) -> None:
        names = ", ".join(victim.ref for victim in stop.victims)
        text = f"stopping {names} for it: {TEXT[Reason(stop.reason)]}"
        b = stop.beneficiary
        data: dict[str, object] = {"victims": [victim.ref for victim in stop.victims]}
        self._story.tell([Event(stop.begun, b.ref, b.user, b.account, "room_is_made", text, data)])
        self._log.info("stop begins", stop=stop.id, beneficiary=b.ref, account=b.account, victims=names)

    def _tell_victim(self, stop: Stop, victim: VictimState, job: Job, now: float) -> None:
        b = stop.beneficiary
        kind = "urgent" if b.urgent else "entitled"
        text = f"stopped ({victim.method}) for job {b.ref} of account {b.account}, which is {kind}"
        lost = 0.0 if METHODS[victim.method].keeps_work else max(0.0, now - victim.start)
        data: dict[str, object] = {"beneficiary": b.ref, "method": victim.method, "lost_seconds": lost}
        self._story.tell([Event(now, victim.ref, victim.user, victim.account, "stopped", text, data)])

    def _tell_end(self, stop: Stop) -> None:
        """Put the end on record; told before the journal forgets the stop, so that a crash in between repeats it."""
        b, now = stop.beneficiary, self._clock()
        outcome = stop.outcome or Outcome.CHANGED
        self._story.tell_stop(stop)
        waited = None if stop.started_at is None else stop.started_at - b.submitted
        text = {
            Outcome.STARTED: f"runs, {waited or 0.0:.1f} s after it was submitted",
            Outcome.BENEFICIARY_GONE: "was gone before it started; those stopped for it come back",
            Outcome.NOT_STARTED: "did not start in time on the nodes that were freed; undone",
            Outcome.VICTIM_STAYED: "a job did not stop in time; undone",
            Outcome.REFUSED: "Slurm refused: " + "; ".join(message for _, message in stop.refused[:3]),
            Outcome.TOO_OLD: "the decision was too old when it could be carried out; undone, and decided anew",
            Outcome.CHANGED: "the situation changed before anything was done",
        }[outcome]
        self._story.tell([Event(now, b.ref, b.user, b.account, outcome.value, text, {"stop": stop.id})])
        self._log.info("stop is over", stop=stop.id, beneficiary=b.ref, outcome=outcome.value, waited=waited)
        policy = "urgent" if b.urgent else "omfs"
        for victim in stop.victims:
            self._metrics.count_preemption(policy, victim.method, stop.reason, outcome.value)
        if stop.started_at is not None:
            self._metrics.observe_reclaim(max(0.0, stop.started_at - stop.begun))

    def _comment_end(self, stop: Stop, picture: Picture) -> None:
        """Take our marks off; a stopped victim keeps its mark until it runs again."""
        if stop.outcome is Outcome.CHANGED:
            return
        untouched = [v.ref for v in stop.victims if v.ref not in self._journal.state.stopped and picture.job(v.ref)]
        wanted: list[orders.Order] = []
        if untouched:
            wanted.append(orders.Comment(tuple(untouched), f"[omfs] was to be stopped for job {stop.beneficiary.ref}"))
        if stop.outcome is Outcome.STARTED:
            text = f"[omfs] started by stopping {len(stop.victims)} jobs ({stop.reason})"
            wanted.append(orders.Comment((stop.beneficiary.ref,), text))
        give(self._gateway, wanted)


def _beneficiary(reclaim: Reclaim, job: Job) -> Beneficiary:
    return Beneficiary(
        ref=reclaim.beneficiary,
        account=reclaim.account,
        user=job.user,
        urgent=reclaim.urgent,
        suspended=reclaim.suspended,
        submitted=reclaim.submitted,
        shares=reclaim.shares,
        nice=nice_in(job, Band.BENEFICIARY),
        nice_before=own_nice(job),
        held_before=job.hold is not Hold.NONE and is_held_by_us(job),
        required_before=tuple(sorted(job.request.required_nodes)),
    )


def with_clock_moved(stop: Stop, seconds: float) -> Stop:
    """The stop as if its step had begun later: time in which Slurm was away does not count."""
    return replace(stop, since=stop.since + seconds)
