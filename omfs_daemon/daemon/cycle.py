"""One cycle: observe, go on with what is under way, plan, validate, execute, record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import structlog

from omfs_daemon.cluster.holds import admin_comment_of, highest_number, is_release_unfinished
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.marks import MarkWord
from omfs_daemon.cluster.snapshot import NodeObservations, Snapshot
from omfs_daemon.daemon.api.cycle_report import CycleReport, cycle_summary
from omfs_daemon.daemon.executor import Executor
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue, NoNodeWorkQueue
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.daemon.preemption_runner import PreemptionRunner
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.errors import GatewayError, GatewayTimeout, OmfsError, ParseError
from omfs_daemon.policy.arrays.snapshot_arrays import SnapshotArrays
from omfs_daemon.policy.plan import TEXT, HoldChange, Plan, Reason
from omfs_daemon.policy.planner import make_plan
from omfs_daemon.policy.validator import REFUSAL_TEXT, Conditions, Verdict, validate
from omfs_daemon.preemption.effects import with_clock_moved
from omfs_daemon.preemption.methods.base import Action, ObservedJob
from omfs_daemon.preemption.methods.not_installed import method_named
from omfs_daemon.preemption.methods.suspend import SuspendMethod
from omfs_daemon.preemption.observation import Observation
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.preemption.records import JobEvent
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import JobPreempted, OrdersNumbered, PreemptionChanged, Record
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway, OrderRefusal

REFUSED_FOR = 60.0
"""Seconds until a hold or release that Slurm refused may be ordered again."""

SET_ASIDE_LOGGED = 20
"""Jobs that one line of the log names."""


class Cycle:
    """Runs one cycle at a time; no loop, no threads, no signals."""

    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        history_database: HistoryDatabase,
        metrics: Metrics,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        work_queue: NodeWorkQueue | None = None,
        facts: Callable[[], NodeObservations] = NodeObservations,
    ) -> None:
        self._journal = journal
        self._history_database = history_database
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._executor = Executor(gateway, work_queue or NoNodeWorkQueue(), journal)
        self._observer = Observer(gateway, clock, lambda: settings().node_licenses, facts)
        self._runner = PreemptionRunner(self._executor, journal, history_database, metrics, clock)
        self._away_since: float | None = None
        self._arrays: dict[PollKind, SnapshotArrays] = {}
        self._is_first = True
        self._refused_until: dict[str, float] = {}
        self._refused_before: frozenset[tuple[str, str]] = frozenset()
        self._set_aside_before: frozenset[int] = frozenset()
        self._log = structlog.get_logger("cycle")

    @property
    def has_urgent_polls(self) -> bool:
        """Whether ``run`` can poll for urgent jobs alone."""
        return not self._is_first and self._observer.has_urgent_polls(self._settings().rules)

    def run(self, poll: PollKind = PollKind.FULL) -> CycleReport:
        """One cycle. Errors become part of the report: the daemon waits and tries again, and never gives up.

        ``poll``: with ``URGENT``, jobs are preempted for urgent ones, and nothing else is done.
        """
        began = self._clock()
        try:
            report = self._run(began) if poll is PollKind.FULL else self._run_for_urgent(began)
        except GatewayError as error:
            self._away_since = began if self._away_since is None else self._away_since
            self._metrics.count_slurm_error(_kind(error))
            away = began - self._away_since
            text = f"Slurm does not answer ({error}): waiting for {away:.0f} s, nothing is decided"
            report = CycleReport(began, text, error=str(error), slurm_answers=False)
        except OmfsError as error:
            report = CycleReport(began, str(error), error=str(error))
        except Exception as error:
            # A bug of ours must not end the daemon: nothing would release what it holds.
            self._log.exception("internal_error", message="nothing is decided in this cycle")
            report = CycleReport(
                began, f"internal error in omfsd ({type(error).__name__}): see the log", error=str(error)
            )
        report = replace(report, took=self._clock() - began)
        self._metrics.observe_cycle(report.took)
        return report

    def _run_for_urgent(self, began: float) -> CycleReport:
        settings = self._settings()
        snapshot = self._observer.observe_urgent(settings.rules)
        if snapshot is None:
            return self._run(began)
        return self._decide(began, snapshot, settings, PollKind.URGENT)

    def _run(self, began: float) -> CycleReport:
        settings = self._settings()
        snapshot = self._observer.poll()
        self._metrics.observe_poll(snapshot.taken)
        self._note_set_aside(snapshot)
        self._forgive_outage(began)
        if not settings.dry_run:
            if self._is_first:
                self._find_marked(snapshot)
            self._go_on(snapshot, settings)
        self._is_first = False
        return self._decide(began, snapshot, settings, PollKind.FULL)

    def _decide(self, began: float, snapshot: Snapshot, settings: Settings, poll: PollKind) -> CycleReport:
        state = self._journal.state
        now = self._clock()
        arrays = self._arrays[poll] = SnapshotArrays(snapshot, self._arrays.get(poll))
        history = state.preemption_history(settings.rules.methods)
        suggested = make_plan(snapshot, history, settings.rules, now, arrays)
        conditions = Conditions(settings.max_age, paused=state.pause is not None)
        verdict = validate(suggested, snapshot, history, settings.rules, now, conditions, arrays)
        if poll is PollKind.URGENT:
            # Other waiting jobs were not observed now: they are for the next full poll.
            verdict = Verdict(tuple(planned for planned in verdict.preemptions if planned.urgent), (), ())
            suggested = replace(suggested, starts=(), holds=(), releases=(), ranks=())
        else:
            self._note_refusals(verdict, now)
        text = cycle_summary(suggested, verdict, state, settings.dry_run)
        decided = self._clock()
        if not settings.dry_run:
            self._enact(suggested, verdict, self._observation(snapshot), settings, poll)
            self._journal.compact_if_large()
        return CycleReport(began, text, settings.rules, snapshot, suggested, verdict, seen=now, decided=decided)

    def _note_set_aside(self, snapshot: Snapshot) -> None:
        """Jobs that are set aside are logged once."""
        found = {job.id: job for job in snapshot.jobs.values() if job.set_aside}
        fresh = [job for number, job in found.items() if number not in self._set_aside_before]
        self._set_aside_before = frozenset(found)
        self._metrics.observe_set_aside(len(found))
        if fresh:
            named = [f"{brief_ref(job.ref)} ({job.user}): {job.set_aside}" for job in fresh[:SET_ASIDE_LOGGED]]
            self._log.warning("jobs_set_aside", number=len(fresh), jobs=named)

    # -- what is under way --------------------------------------------------------------------------------
    def _forgive_outage(self, now: float) -> None:
        """Time in which Slurm did not answer does not count against victims or preemptors."""
        if self._away_since is None:
            return
        away = now - self._away_since
        preemptions = self._journal.state.preemptions.values()
        records = [PreemptionChanged(with_clock_moved(preemption, away)) for preemption in preemptions]
        if records:
            self._journal.write(*records)
        self._away_since = None

    def _find_marked(self, snapshot: Snapshot) -> None:
        """After a start: suspended jobs with our mark that the journal does not know (it was lost), and marks with
        higher numbers than it knows (it was lost, or the failsafe has written them)."""
        state = self._journal.state
        known = {ref for preemption in state.preemptions.values() for ref in preemption.refs}.union(state.preempted)
        lost: list[Record] = [
            JobPreempted(job.ref, self._clock(), SuspendMethod.traits.name, "")
            for job in snapshot.jobs.values()
            if job.state is JobState.SUSPENDED
            and job.ref not in known
            and admin_comment_of(job).word is MarkWord.STOPPING
        ]
        highest = highest_number(snapshot.jobs.values())
        if highest > state.sequence:
            unfinished = (job.ref for job in snapshot.jobs.values() if is_release_unfinished(job, highest))
            lost.append(OrdersNumbered(highest, tuple(unfinished)))
        if lost:
            self._journal.write(*lost)

    def _go_on(self, snapshot: Snapshot, settings: Settings) -> None:
        observation = self._observation(snapshot)
        for _, preemption in sorted(self._journal.state.preemptions.items()):
            self._runner.advance(preemption, observation, settings)
        found = reconcile(self._journal.state, observation, self._clock(), settings)
        if found.records:
            self._journal.write(*found.records)
        # Before the orders, which may fail: the journal does not have these jobs as preempted a second time.
        self._history_database.record_costs(found.costs)
        for paid in found.costs:
            self._metrics.observe_cost(paid)
        refused = {refusal.ref for refusal in self._executor.give(found.orders, observation, settings.nodes)}
        self._history_database.record_events(event for event in found.events if event.job not in refused)

    def _observation(self, snapshot: Snapshot) -> Observation:
        return Observation(snapshot, self._executor.work_queue.seen)

    # -- what is decided now ------------------------------------------------------------------------------------
    def _enact(
        self, suggested: Plan, verdict: Verdict, observation: Observation, settings: Settings, poll: PollKind
    ) -> None:
        """Preemptions first, because jobs wait for them; then holds, releases, resumes, and ranks."""
        for planned in verdict.preemptions:
            self._runner.begin(planned, observation, settings)
        if poll is PollKind.URGENT:
            return
        paused = self._journal.state.pause is not None
        self._place(suggested, observation, settings)
        self._release(suggested.releases, observation, settings)
        if paused:
            return
        self._hold(suggested.holds, observation, settings)
        self._resume(verdict, observation, settings)
        by_nice: dict[int, list[str]] = {}
        for rank in suggested.ranks:
            by_nice.setdefault(rank.nice, []).append(rank.ref)
        ranks = [orders.SetNice(tuple(refs), nice) for nice, refs in by_nice.items()]
        self._executor.give(ranks, observation, settings.nodes)

    def _place(self, suggested: Plan, observation: Observation, settings: Settings) -> None:
        """Jobs that left the choice of their nodes to us get nodes and licenses together, before they are released."""
        released = {change.ref for change in suggested.releases}
        wanted: list[Action] = []
        for start in suggested.starts:
            job = observation.job(start.ref)
            if job is not None and job.request.unplaced and start.ref in released:
                nodes = tuple(allocation.node for allocation in start.allocations)
                wanted.append(orders.PinNodes(start.ref, nodes, settings.node_licenses.placed(job.licenses, nodes)))
        self._executor.give(wanted, observation, settings.nodes)

    def _release(self, changes: tuple[HoldChange, ...], observation: Observation, settings: Settings) -> None:
        """End holds of ours."""
        changes = self._not_refused_lately(changes)
        if changes:
            release = orders.ReleaseJobs(tuple(change.ref for change in changes))
            refusals = self._executor.give([release], observation, settings.nodes)
            self._record_changes("released", changes, refusals, observation)

    def _hold(self, changes: tuple[HoldChange, ...], observation: Observation, settings: Settings) -> None:
        """Set an administrator's hold."""
        changes = self._not_refused_lately(changes)
        if not changes:
            return
        by_reason: dict[Reason, list[str]] = {}
        for change in changes:
            by_reason.setdefault(change.reason, []).append(change.ref)
        holds = [orders.HoldJobs(tuple(refs), f"[omfs] {TEXT[reason]}") for reason, refs in by_reason.items()]
        refusals = self._executor.give(holds, observation, settings.nodes)
        self._record_changes("held", changes, refusals, observation)

    def _not_refused_lately(self, changes: tuple[HoldChange, ...]) -> tuple[HoldChange, ...]:
        now = self._clock()
        self._refused_until = {ref: until for ref, until in self._refused_until.items() if until > now}
        return tuple(change for change in changes if change.ref not in self._refused_until)

    def _record_changes(
        self, event: str, changes: tuple[HoldChange, ...], refusals: list[OrderRefusal], observation: Observation
    ) -> None:
        """What was done goes into the history; what Slurm refused into the log, and is not ordered again at once."""
        now = self._clock()
        for refusal in refusals:
            self._refused_until[refusal.ref] = now + REFUSED_FOR
            self._log.warning("order_refused", change=event, job=brief_ref(refusal.ref), error=refusal.message)
        done = [change for change in changes if change.ref not in self._refused_until]
        jobs = [(change, observation.job(change.ref)) for change in done]
        self._history_database.record_events(
            JobEvent(now, change.ref, job.user if job else "", change.account, event, TEXT[change.reason])
            for change, job in jobs
        )

    def _resume(self, verdict: Verdict, observation: Observation, settings: Settings) -> None:
        """Resume suspended jobs once their memory is in; that they run is observed, and recorded, in the next cycle.
        Those whose memory was moved in for a turn that is over are moved out again."""
        wanted: list[Action] = []
        turns = {resume.ref for resume in verdict.resumes}
        under_way = {ref for preemption in self._journal.state.preemptions.values() for ref in preemption.refs}
        for ref, preempted in self._journal.state.preempted.items():
            job = observation.job(ref)
            if job is None or job.state is not JobState.SUSPENDED:
                continue
            method, seen = method_named(settings.methods, preempted.method), ObservedJob(job, observation.work(ref))
            if ref in turns:
                wanted += method.resume(seen, cpus_free=True)
            elif ref not in under_way:
                wanted += method.keep_preempted(seen)
        resumed = tuple(ref for action in wanted if isinstance(action, orders.ResumeJobs) for ref in action.refs)
        rest = [action for action in wanted if not isinstance(action, orders.ResumeJobs)]
        self._executor.give([*rest, *([orders.ResumeJobs(resumed)] if resumed else [])], observation, settings.nodes)

    def _note_refusals(self, verdict: Verdict, now: float) -> None:
        """Refusals are recorded like orders, once for as long as they stay the same."""
        present = frozenset((refused.ref, refused.reason.value) for refused in verdict.refused)
        fresh = [r for r in verdict.refused if (r.ref, r.reason.value) not in self._refused_before]
        self._refused_before = present
        self._history_database.record_events(
            JobEvent(now, r.ref, "", r.account, "validator_refused", REFUSAL_TEXT[r.reason]) for r in fresh
        )
        if fresh:
            self._log.warning("validator_refused", reasons=dict(Counter(r.reason.value for r in fresh)))


def _kind(error: GatewayError) -> str:
    if isinstance(error, GatewayTimeout):
        return "timeout"
    return "parse" if isinstance(error, ParseError) else "failed"
