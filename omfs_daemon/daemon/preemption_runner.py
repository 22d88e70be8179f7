"""Writes the journal, then has the executor give the orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
import structlog
from omfs_daemon.cluster import run_report as launched
from omfs_daemon.cluster.jobs import Job
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.daemon.executor import Hands
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import Record
from omfs_daemon.preemption.state import Spared
from omfs_daemon.preemption.state import StopChanged
from omfs_daemon.preemption.state import TriedInVain
from omfs_daemon.preemption.preemption import Outcome
from omfs_daemon.preemption.preemption import Step
from omfs_daemon.preemption.preemption import Stop
from omfs_daemon.preemption.preemption import VictimState
from omfs_daemon.preemption.preemption import absorb
from omfs_daemon.preemption.step_orders import not_brought_back
from omfs_daemon.preemption.step_orders import orders_after_stopping
from omfs_daemon.preemption.step_orders import orders_for
from omfs_daemon.preemption.next_step import next_state
from omfs_daemon.preemption.records import Event
from omfs_daemon.preemption.records import Paid
from omfs_daemon.daemon.store.history_database import Story
from omfs_daemon.errors import GatewayError
from omfs_daemon.errors import JournalError
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.policy.plan import TEXT
from omfs_daemon.policy.plan import Reason
from omfs_daemon.policy.plan import Reclaim
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.preemption.effects import _parts
from omfs_daemon.preemption.effects import _stopped
from omfs_daemon.preemption.begin import _victim
from omfs_daemon.preemption.begin import _beneficiary

DECISION_KEEPS = 30.0
"""Seconds for which the decision to stop somebody holds; after that nobody is stopped on it who still runs."""

_MOST_DOUBLINGS = 6
"""How often the time for which a job is spared is doubled at most."""

_AGAIN_AFTER = 2.0
"""Seconds after which orders that had no visible effect are given once more."""


class Conductor:
    """The stops under way live in the journal's state; this holds only which of them this very process began without
    a fault since, and when orders were last given."""

    def __init__(
        self, hands: Hands, journal: Journal, story: Story, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._hands = hands
        self._journal = journal
        self._story = story
        self._metrics = metrics
        self._clock = clock
        self._ordered: dict[int, tuple[float, frozenset[tuple[str, str]]]] = {}
        self._fresh: set[int] = set()
        self._log = structlog.get_logger("stop")

    # -- beginning ------------------------------------------------------------------------------------------
    def begin(self, reclaim: Reclaim, picture: Picture, settings: Settings) -> Stop | None:
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
            beneficiary=_beneficiary(
                reclaim,
                beneficiary,
                self._journal.state.stopped.get(reclaim.beneficiary),
                {name for victim in victims if victim is not None for name, _ in victim.request.gres},
                settings,
            ),
            victims=tuple(
                _victim(v, job, settings) for v, job in zip(reclaim.victims, victims, strict=True) if job is not None
            ),
        )
        for ref in stop.refs:
            self._hands.desk.forget(ref)  # what was done there once is not what is done now
        # Nothing is ordered at its first step: what is on record first is its second one.
        self._fresh.add(stop.id)
        try:
            return self.advance(stop, picture, settings)
        finally:
            if self._journal.state.next_stop > stop.id:  # it is on record; else nothing has begun
                self._tell_begin(stop)

    # -- going on -------------------------------------------------------------------------------------------
    def advance(self, stop: Stop, picture: Picture, settings: Settings) -> Stop:
        """As far as it goes on what is seen. Raises GatewayError or JournalError; the stop then stays at its step, and
        nobody is stopped any more on the old decision."""
        try:
            return self._advance(stop, picture, settings)
        except (GatewayError, JournalError):
            self._fresh.discard(stop.id)
            raise

    def _advance(self, stop: Stop, picture: Picture, settings: Settings) -> Stop:
        given: set[Action] = set()
        while not stop.step.is_over:
            self._note_let_go(stop, picture, settings)
            following = next_state(stop, picture, self._clock(), settings.means, self._is_fresh(stop, settings))
            if following is stop:
                return self._repeat(stop, picture, settings)
            following = self._came_and_went(following)
            if following.step.is_over:
                self._tell_end(following)
            left = self._left_behind(following, picture, settings)
            self._journal.write(StopChanged(following), *left, *self._consequences(following, settings.retry_after))
            # What has been ordered on this very picture is not missing in its next step.
            wanted = [action for action in orders_for(following, picture, settings.means) if action not in given]
            given.update(wanted)
            stop = self._order(following, wanted, picture, settings)
            if stop.step in (Step.STOPPING, Step.STARTING, Step.RETURNING, Step.UNDOING):
                return stop
        self._ordered.pop(stop.id, None)
        self._fresh.discard(stop.id)
        self._comment_end(stop, picture, settings)
        return stop

    def _came_and_went(self, stop: Stop) -> Stop:
        """A beneficiary that is gone may have run and ended between two looks: Slurm remembers it for a while."""
        ref = stop.beneficiary.ref
        if stop.outcome is not Outcome.BENEFICIARY_GONE or stop.started_at is not None or not ref.isdecimal():
            return stop
        job = self._hands.find(int(ref))
        if job is None or job.start is None or job.start < int(stop.begun):
            return stop
        return replace(stop, outcome=Outcome.STARTED, started_at=job.start)

    def _is_fresh(self, stop: Stop, settings: Settings) -> bool:
        """Stops that take their time by nature keep the decision alive for as long."""
        keeps = DECISION_KEEPS + settings.means.patience(stop)
        return stop.id in self._fresh and self._clock() - stop.begun <= keeps

    def _repeat(self, stop: Stop, picture: Picture, settings: Settings) -> Stop:
        """Orders without effect are given again after a while; those that something new calls for, at once."""
        wanted = orders_for(stop, picture, settings.means)
        ordered_at, ordered = self._ordered.get(stop.id, (float("-inf"), frozenset()))
        if self._clock() - ordered_at < _AGAIN_AFTER and _parts(wanted) <= ordered:
            return stop
        return self._order(stop, wanted, picture, settings)

    def _order(self, stop: Stop, wanted: list[Action], picture: Picture, settings: Settings) -> Stop:
        """Give the step's orders; what Slurm refuses goes into the record, for the next step depends on it."""
        self._ordered[stop.id] = (self._clock(), _parts(wanted))
        refusals = self._hands.give(wanted, picture, settings.nodes)
        weighty = [refusal for refusal in refusals if self._matters(stop, refusal)]
        for refusal in refusals:
            self._log.info("slurm refused", stop=stop.id, step=stop.step.value, job=refusal.ref, said=refusal.message)
        if stop.step is Step.STOPPING and not weighty:
            self._hands.give(orders_after_stopping(stop, picture, settings.means), picture, settings.nodes)
        noted = absorb(stop, weighty)
        if noted is not stop:
            self._journal.write(StopChanged(noted))
        return noted

    def _matters(self, stop: Stop, refusal: Refusal) -> bool:
        """In PREPARING what the beneficiary was refused; in STOPPING what a victim was."""
        if stop.step is Step.PREPARING:
            return refusal.ref == stop.beneficiary.ref
        return stop.step is Step.STOPPING and refusal.ref != stop.beneficiary.ref

    def _note_let_go(self, stop: Stop, picture: Picture, settings: Settings) -> None:
        """Remember each victim as stopped as soon as it is seen so, whatever becomes of the stop."""
        if stop.step is Step.PLANNED:
            return
        for victim in stop.victims:
            job = picture.job(victim.ref)
            if job is None or victim.ref in self._journal.state.stopped:
                continue
            if job.state in (JobState.PENDING, JobState.SUSPENDED):
                now = self._clock()
                self._journal.write(_stopped(stop, victim, now))
                self._tell_victim(stop, victim, job, picture, settings, now)

    def _left_behind(self, stop: Stop, picture: Picture, settings: Settings) -> list[Record]:
        """Victims that a node still keeps from running when the stop is undone: ``reconcile`` goes on with them."""
        if stop.step is not Step.UNDONE:
            return []
        now = self._clock()
        return [_stopped(stop, victim, now) for victim in not_brought_back(stop, picture, settings.means)]

    def _consequences(self, stop: Stop, retry_after: float) -> list[Record]:
        """What a stop that did not help teaches: not to try the same again at once."""
        if stop.step is not Step.UNDOING:
            return []
        if stop.outcome in (Outcome.TOO_OLD, Outcome.STARTED, Outcome.BENEFICIARY_GONE):
            return []
        until = self._clock() + retry_after
        if stop.outcome is Outcome.VICTIM_STAYED or stop.outcome is Outcome.REFUSED:
            victims = {victim.ref for victim in stop.victims}
            stubborn = [ref for ref, _ in stop.refused if ref in victims] or sorted(
                victims - set(self._journal.state.stopped)
            )
            spared: list[Record] = [self._spared(ref, retry_after) for ref in stubborn]
            return spared or [TriedInVain(stop.beneficiary.ref, until)]
        return [TriedInVain(stop.beneficiary.ref, until)]

    def _spared(self, ref: str, retry_after: float) -> Spared:
        """Each time for twice as long: who waits must not wait again and again for the same job."""
        times = self._journal.state.failures.get(ref, 0) + 1
        return Spared(ref, self._clock() + retry_after * 2 ** min(times - 1, _MOST_DOUBLINGS), times)

    # -- telling ----------------------------------------------------------------------------------------------
    def _tell_begin(self, stop: Stop) -> None:
        names = ", ".join(victim.ref for victim in stop.victims)
        text = f"stopping {names} for it: {TEXT[Reason(stop.reason)]}"
        b = stop.beneficiary
        data: dict[str, object] = {"victims": [victim.ref for victim in stop.victims]}
        self._story.tell([Event(stop.begun, b.ref, b.user, b.account, "room_is_made", text, data)])
        self._log.info("stop begins", stop=stop.id, beneficiary=b.ref, account=b.account, victims=names)

    def _tell_victim(
        self, stop: Stop, victim: VictimState, job: Job, picture: Picture, settings: Settings, now: float
    ) -> None:
        b = stop.beneficiary
        kind = "urgent" if b.urgent else "entitled"
        text = f"stopped ({victim.method}) for job {b.ref} of account {b.account}, which is {kind}"
        paid = self._paid(stop, victim, job, picture, settings, now)
        data: dict[str, object] = {
            "beneficiary": b.ref,
            "method": victim.method,
            "seconds": round(paid.seconds, 3),
            "bytes": paid.size,
            "lost_seconds": paid.lost,
        }
        self._story.tell([Event(now, victim.ref, victim.user, victim.account, "stopped", text, data)])
        self._story.tell_costs([paid])
        self._metrics.observe_cost(paid)

    def _paid(
        self, stop: Stop, victim: VictimState, job: Job, picture: Picture, settings: Settings, now: float
    ) -> Paid:
        """What it has cost: by our own clock, and as omfs-run or the nodes tell."""
        traits = settings.means.method(victim).traits
        seconds = max(0.0, now - (stop.since if stop.step is Step.STOPPING else stop.begun))
        moving, size = 0.0, 0
        run, work = launched.of(job), picture.work(job.ref)
        if traits.launched and run is not None:
            moving, size = min(run.seconds, seconds), run.size  # its own word, which its owner can write
        elif traits.on_nodes and work is not None:
            moving, size = work.seconds, work.moved
            self._metrics.observe_delay(victim.method, work.slowest)
        lost = 0.0 if traits.keeps_work else max(0.0, now - victim.start)
        name, nodes = victim.method, max(1, len(job.on_nodes))
        return Paid(now, victim.ref, victim.user, victim.account, name, "out", seconds, moving, size, lost, nodes)

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
            Outcome.VICTIM_STAYED: "; ".join(
                ["a job did not stop; undone", *(message for _, message in stop.refused[:3])]
            ),
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

    def _comment_end(self, stop: Stop, picture: Picture, settings: Settings) -> None:
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
        self._hands.give(wanted, picture, settings.nodes)
