"""Carries out effects: records into the journal, then orders, then history, metrics, and log. The only door to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import structlog

from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.marks import parse_admin_comment
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue
from omfs_daemon.daemon.shadow import Shadow
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import GatewayTimeout
from omfs_daemon.preemption.effects import Chain, Effects, order_batches
from omfs_daemon.preemption.methods.base import Action, NodeOrder
from omfs_daemon.preemption.methods.node_work import NodeWork, NodeWorkSettings
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.preemption import HURTS, Preemption, PreemptionOutcome, Step, absorb
from omfs_daemon.preemption.realtime_memory import STARTED
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.restart import unsaved_orders
from omfs_daemon.preemption.state import (
    OrdersNumbered,
    OrdersSaved,
    PreemptionChanged,
    Record,
)
from omfs_daemon.preemption.unsaved_order import Verb
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal
from omfs_daemon.slurm.order_marks import StoredMarks, with_marks
from omfs_daemon.slurm.orders import (
    HoldJobs,
    MarkedOrder,
    Order,
    ReleaseJobs,
    by_job,
    for_jobs,
    refs_of,
    send_orders,
)

AGAIN_AFTER = 2.0
"""Seconds after which an order without visible effect is sent again."""

REFUSED_FIRST, REFUSED_FOR = 4.0, 60.0
"""Seconds after which an order that Slurm refused is sent again: each time after twice as long, up to the second. The
submit plug-in refuses a release for some seconds after its owner has changed the job. So is one of no preemption
that Slurm did not answer: while slurmdbd hangs, slurmctld keeps each update of a new job for five seconds
(_slurm_rpc_update_job), and urgent jobs would wait for the same one again and again."""

SENDS_FOR = 1.0
"""Seconds after which the rest of the orders is left to the next cycle: urgent jobs are not seen meanwhile."""

JOBS_AT_ONCE = 500
"""Jobs in a batch of orders, which is one write to the journal. Slurm takes about a millisecond for each."""

_NODE_TIMEOUT = 60.0

_Key = tuple[Action, str]
Act = TypeVar("Act", bound=Action)


class _PutOff(NamedTuple):
    """For how many seconds a refused order was put off last, and until when."""

    seconds: float
    until: float


def _put_off(last: _PutOff | None, now: float) -> _PutOff:
    seconds = REFUSED_FIRST if last is None else min(REFUSED_FOR, 2 * last.seconds)
    return _PutOff(seconds, now + seconds)


class OrderRight(NamedTuple):
    """Of two daemons that act in turn. ``renew``: raises OmfsError if this one must order nothing now;
    ``first_number``: the marks of its turn have higher numbers."""

    renew: Callable[[], None] = lambda: None
    first_number: int = 0


ALWAYS = OrderRight()
"""Of one daemon alone."""


class EffectsRunner:
    """Remembers which orders were sent lately, by order and job, so that none is repeated before its effect can be
    seen."""

    def __init__(
        self,
        gateway: Gateway,
        work_queue: NodeWorkQueue,
        journal: Journal,
        history_database: HistoryDatabase,
        metrics: Metrics,
        clock: Callable[[], float],
        right: OrderRight = ALWAYS,
    ) -> None:
        self._gateway = gateway
        self._work_queue = work_queue
        self._journal = journal
        self._history_database = history_database
        self._metrics = metrics
        self._clock = clock
        self._right = right
        self._again_at: dict[_Key, float] = {}
        self._put_off: dict[_Key, _PutOff] = {}
        self._boot = ""
        self.shadow = Shadow(history_database)
        """Of a dry run, in which nothing is carried out."""
        self._log = structlog.get_logger("orders")

    def carry_out(self, effects: Effects, observation: Observation, nodes: NodeWorkSettings, boot: str) -> None:
        """``boot``: as in ``UnsavedOrder``.

        OmfsError: nothing may be ordered now, and nothing is done.

        What is left after ``SENDS_FOR`` is missing in the next cycle, too, and sent then. JournalError: nothing of a
        batch is done. GatewayError: the orders up to there may or may not have taken effect.
        """
        self._right.renew()  # a poll may have taken longer than a lease lasts
        if boot != self._boot:
            # What the slurmctld before took, this one may have forgotten.
            self._boot, self._again_at, self._put_off = boot, {}, {}
        first, *others = order_batches(self._not_sent_lately(effects.chains), JOBS_AT_ONCE)
        marked = self._record(first, effects.records, observation, boot)
        for preemption in effects.begun:
            for ref in preemption.refs:
                self._work_queue.forget(ref)  # earlier work says nothing about this preemption
        ends, taken = self._clock() + SENDS_FOR, set[str]()
        try:
            taken |= self._send_batch(first, marked, observation, nodes, boot)
            for batch in others:
                if self._clock() > ends:
                    break
                marked = self._record(batch, [], observation, boot)
                taken |= self._send_batch(batch, marked, observation, nodes, boot)
        finally:
            self._tell(effects, taken, observation)

    # -- orders -------------------------------------------------------------------------------------------------
    def _record(
        self, chains: list[Chain], records: list[Record], observation: Observation, boot: str
    ) -> list[list[Order | MarkedOrder]]:
        """Put on disk what is about to be ordered; returns the fields of each chain with their marks."""
        marked, numbered = self._numbered(chains, observation)
        known = self._journal.state.unsaved
        records = [*records, *numbered, *unsaved_orders(chains, observation, boot, self._clock(), known)]
        if records:
            self._journal.write(*records)
        return marked

    def _send_batch(
        self,
        chains: list[Chain],
        marked: list[list[Order | MarkedOrder]],
        observation: Observation,
        nodes: NodeWorkSettings,
        boot: str,
    ) -> set[str]:
        """The jobs whose orders Slurm took."""
        taken: set[str] = set()
        for chain, fields in zip(chains, marked, strict=True):
            taken |= self._send(chain, fields, observation, nodes, boot)
        return taken

    def _not_sent_lately(self, chains: Iterable[Chain]) -> list[Chain]:
        now = self._clock()
        self._again_at = {key: at for key, at in self._again_at.items() if at > now}
        self._put_off = {key: last for key, last in self._put_off.items() if last.until + REFUSED_FOR > now}
        found = []
        for chain in chains:
            fields, transitions = self._due(chain.fields, now), self._due(chain.transitions, now)
            if fields or transitions:
                found.append(replace(chain, fields=fields, transitions=transitions))
        return found

    def _due(self, listed: Iterable[Act], now: float) -> tuple[Act, ...]:
        """The orders without the jobs for which they were sent lately."""
        found: list[Any] = []
        for action in listed:
            keys = _keys(action)
            due = [ref for key, ref in keys if self._again_at.get((key, ref), now) <= now]
            if len(due) == len(keys):
                found.append(action)
            elif due and not isinstance(action, NodeOrder):
                found.append(for_jobs(action, due))
        return tuple(found)

    def _numbered(
        self, chains: list[Chain], observation: Observation
    ) -> tuple[list[list[Order | MarkedOrder]], list[Record]]:
        """The fields with their AdminComments. The number is on disk before a mark has it: none is used twice."""
        number = max(self._journal.state.sequence, self._right.first_number) + 1
        stored = StoredMarks(observation.job)
        marked: list[list[Order | MarkedOrder]] = [with_marks(chain.fields, stored, number) for chain in chains]
        written = [order for fields in marked for order in fields if isinstance(order, MarkedOrder)]
        if not written:
            return marked, []
        holds = tuple(ref for order in written if isinstance(order.order, HoldJobs) for ref in order.order.refs)
        releases = tuple(
            ref
            for order in written
            if isinstance(order.order, ReleaseJobs) and parse_admin_comment(order.comment).number == number
            for ref in order.order.refs
        )
        return marked, [OrdersNumbered(number, holds, releases)]

    def _send(
        self,
        chain: Chain,
        fields: list[Order | MarkedOrder],
        observation: Observation,
        nodes: NodeWorkSettings,
        boot: str,
    ) -> set[str]:
        """The jobs whose orders Slurm took. A transition is sent only if nothing before it was refused."""
        for action in (*chain.fields, *chain.transitions):
            self._note_sent(action)
        try:
            refusals = send_orders(self._gateway, fields)
        except GatewayTimeout:
            if not chain.preemption:
                self._put_off_orders(chain, {ref for action in chain.fields for _, ref in _keys(action)})
            raise
        not_sent: list[Action] = []
        for action in chain.transitions:
            if refusals:
                not_sent.append(action)
            elif isinstance(action, NodeOrder):
                self._ask_nodes(action, observation, nodes)
            else:
                refusals += send_orders(self._gateway, [action])
        if refusals:
            self._note_refusals(chain, refusals, not_sent, boot)
        sent = {ref for order in fields for ref in refs_of(order)}
        return sent - {refusal.ref for refusal in refusals}

    def _note_sent(self, action: Action) -> None:
        self._again_at |= dict.fromkeys(_keys(action), self._clock() + AGAIN_AFTER)

    def _put_off_orders(self, chain: Chain, refs: set[str]) -> None:
        """All orders of the chain for these jobs."""
        now = self._clock()
        for key in (key for action in (*chain.fields, *chain.transitions) for key in _keys(action) if key[1] in refs):
            self._put_off[key] = _put_off(self._put_off.get(key), now)
            self._again_at[key] = self._put_off[key].until

    def _note_refusals(self, chain: Chain, refusals: list[OrderRefusal], not_sent: list[Action], boot: str) -> None:
        """They are recorded, because the preemption's next step depends on them; slurmctld has nothing of them to
        forget. But a resume may have been refused by another slurmctld, which has forgotten the suspension. What was
        not sent may be sent by the next cycle: an urgent job may wait for it."""
        for key in (key for action in not_sent for key in _keys(action)):
            self._again_at.pop(key, None)
        self._put_off_orders(chain, {refusal.ref for refusal in refusals})
        for refusal in refusals:
            job, number = brief_ref(refusal.ref), chain.preemption or None
            self._log.warning("order_refused", preemption=number, job=job, error=refusal.message)
        ordered = {ref for action in chain.transitions for _, ref in _keys(action)}
        never = ordered.intersection(refusal.ref for refusal in refusals)
        never |= {ref for action in not_sent for _, ref in _keys(action)}
        unsaved = self._journal.state.unsaved
        known = {ref: unsaved[ref] for ref in never if ref in unsaved}
        if never := {ref for ref, order in known.items() if order.boot == boot and order.verb is not Verb.RESUME}:
            self._journal.write(OrdersSaved(tuple(sorted(never))))
        preemption = self._journal.state.preemptions.get(chain.preemption)
        if preemption is not None and preemption.step in (Step.PROVING, Step.STOPPING):
            self._journal.write(PreemptionChanged(absorb(preemption, refusals)))

    def _ask_nodes(self, action: NodeOrder, observation: Observation, settings: NodeWorkSettings) -> None:
        job = observation.job(action.ref)
        if job is None or not job.on_nodes:
            return
        self._work_queue.ask(
            NodeWork(
                ref=job.ref,
                job_id=job.id,
                uid=job.uid,
                nodes=job.on_nodes,
                do=action.do,
                method=action.method,
                resume=action.resume,
                suspended=job.state is JobState.SUSPENDED,
                options=settings.options.get(action.method, {}),
                slurm=settings.slurm,
                timeout=settings.timeout.get(action.method, _NODE_TIMEOUT),
            )
        )

    # -- history, log, and metrics ----------------------------------------------------------------------------
    def _tell(self, effects: Effects, taken: set[str], observation: Observation) -> None:
        events = [*effects.events, *(event for event in effects.events_if_taken if event.job in taken)]
        self._history_database.record_events(events)
        self._history_database.record_tasks(self._clock(), _tasks(events, observation))
        self._history_database.record_costs(effects.costs)
        for paid in effects.costs:
            self._metrics.observe_cost(paid)
        for event in events:
            if event.event == STARTED:
                self._metrics.realtime.note_start(event)
        for preemption in effects.begun:
            self._log_begin(preemption)
        for end in effects.ended:
            self._history_database.record_preemption(end)
            self._log_end(end.preemption)

    def _log_begin(self, preemption: Preemption) -> None:
        preemptor = preemption.preemptor
        self._log.info(
            "preemption_started",
            preemption=preemption.id,
            preemptor=preemptor.ref,
            account=preemptor.account,
            victims=[victim.ref for victim in preemption.victims],
        )

    def _log_end(self, preemption: Preemption) -> None:
        preemptor = preemption.preemptor
        outcome = (preemption.outcome or PreemptionOutcome.NOT_STARTED).value
        number, ref, account, waited = preemption.id, preemptor.ref, preemptor.account, preemption.waited
        victims = [victim.ref for victim in preemption.victims]
        if preemption.step is Step.DONE:
            self._log.info(
                "preemption_completed",
                preemption=number,
                preemptor=ref,
                account=account,
                victims=victims,
                outcome=outcome,
                waited=waited,
            )
        elif preemption.outcome in HURTS:
            self._log.warning(
                "preemption_failed",
                preemption=number,
                preemptor=ref,
                account=account,
                victims=victims,
                outcome=outcome,
                waited=waited,
            )
        else:
            self._log.info(
                "preemption_undone",
                preemption=number,
                preemptor=ref,
                account=account,
                victims=victims,
                outcome=outcome,
                waited=waited,
            )
        policy = "urgent" if preemptor.urgent else "omfs"
        for victim in preemption.victims:
            self._metrics.count_preemption(policy, victim.method, preemption.reason, outcome)
        if preemption.outcome is PreemptionOutcome.STARTED:
            # By our own clock, as observed: Slurm's start times are in whole seconds.
            self._metrics.observe_reclaim(max(0.0, preemption.since - preemption.begun))


def _tasks(events: Iterable[JobEvent], observation: Observation) -> dict[int, str]:
    """By raw id, the tasks of arrays among these jobs that are jobs of their own; the last task of an array has the
    array's id."""
    found = (observation.job(event.job) or observation.ended(event.job) for event in events)
    jobs = [job for job in found if job is not None and job.array_id not in (None, job.id)]
    return {job.id: job.ref for job in jobs if len(job.task_ids) == 1}


def _keys(action: Action) -> list[_Key]:
    """The order for each of its jobs."""
    return [(action, action.ref)] if isinstance(action, NodeOrder) else [*by_job(action)]
