"""One cycle: observe, decide, judge, enact, record; and one human sentence about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
import structlog
from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.cluster.preempt_methods import SUSPEND
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.daemon.preemption_runner import Conductor
from omfs_daemon.preemption.effects import with_clock_moved
from omfs_daemon.daemon.node_client.work_queue import NodeWorkQueue as Desk
from omfs_daemon.daemon.executor import Hands
from omfs_daemon.daemon.node_client.work_queue import NoDesk
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.cluster.snapshot import Facts
from omfs_daemon.daemon.observer import Observer
from omfs_daemon.preemption.observation import Picture
from omfs_daemon.preemption.reconcile import reconcile
from omfs_daemon.daemon.poll_schedule import Look
from omfs_daemon.daemon.api.cycle_report import sentence
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import JobStopped
from omfs_daemon.preemption.state import StopChanged
from omfs_daemon.preemption.records import Event
from omfs_daemon.daemon.store.history_database import Story
from omfs_daemon.errors import GatewayError
from omfs_daemon.errors import GatewayTimeout
from omfs_daemon.errors import OmfsError
from omfs_daemon.errors import ParseError
from omfs_daemon.preemption.methods.base import Action
from omfs_daemon.preemption.methods.base import Seen
from omfs_daemon.preemption.methods.not_installed import method_of
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.policy.validator import REFUSAL_TEXT
from omfs_daemon.policy.validator import Conditions
from omfs_daemon.policy.validator import Verdict
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.plan import TEXT
from omfs_daemon.policy.plan import Change
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import plan
from omfs_daemon.cluster.holds import HOLD_MARK
from omfs_daemon.cluster.holds import OUR_MARK
from omfs_daemon.cluster.holds import STOPPED_MARK
from omfs_daemon.policy.arrays.snapshot_arrays import Scene
from omfs_daemon.slurm import orders
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import Refusal
from omfs_daemon.slurm.orders import give
from omfs_daemon.daemon.api.cycle_report import Report

REFUSED_FOR = 60.0
"""Seconds for which a hold or release that Slurm refused is not ordered again."""


class Cycle:
    """Everything that one cycle needs; no loop, no threads, no signals."""

    def __init__(
        self,
        gateway: Gateway,
        journal: Journal,
        story: Story,
        metrics: Metrics,
        settings: Callable[[], Settings],
        clock: Callable[[], float],
        desk: Desk | None = None,
        facts: Callable[[], Facts] = Facts,
    ) -> None:
        self._gateway = gateway
        self._journal = journal
        self._story = story
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._hands = Hands(gateway, desk or NoDesk())
        self._observer = Observer(gateway, clock, lambda: settings().books, facts)
        self._conductor = Conductor(self._hands, journal, story, metrics, clock)
        self._away_since: float | None = None
        self._scenes: dict[Look, Scene] = {}
        self._is_first = True
        self._refused_until: dict[str, float] = {}
        self._refused_before: frozenset[tuple[str, str]] = frozenset()
        self._log = structlog.get_logger("cycle")

    @property
    def has_urgent_looks(self) -> bool:
        """Whether ``run`` can look for urgent jobs alone."""
        return not self._is_first and self._observer.has_urgent_looks(self._settings().rules)

    def run(self, look: Look = Look.FULL) -> Report:
        """One cycle. Errors become part of the report: the daemon waits and tries again, it never gives up.

        ``look``: with ``URGENT``, jobs are stopped for urgent ones, and nothing else is done.
        """
        began = self._clock()
        try:
            report = self._run(began) if look is Look.FULL else self._run_for_urgent(began)
        except GatewayError as error:
            self._away_since = began if self._away_since is None else self._away_since
            self._metrics.count_slurm_error(_kind(error))
            away = began - self._away_since
            text = f"Slurm does not answer ({error}): waiting for {away:.0f} s, nothing is decided"
            report = Report(began, text, error=str(error))
        except OmfsError as error:
            report = Report(began, str(error), error=str(error))
        except Exception as error:
            # A fault of ours must not end the daemon, for then nothing would let go what it holds.
            self._log.exception("a fault in omfsd itself: nothing is decided in this cycle")
            report = Report(began, f"a fault in omfsd itself ({type(error).__name__}): see the log", error=str(error))
        report = replace(report, took=self._clock() - began)
        self._metrics.observe_cycle(report.took)
        return report

    def _run_for_urgent(self, began: float) -> Report:
        settings = self._settings()
        snapshot = self._observer.look_for_urgent(settings.rules)
        if snapshot is None:
            return self._run(began)
        return self._decide(began, snapshot, settings, Look.URGENT)

    def _run(self, began: float) -> Report:
        settings = self._settings()
        snapshot = self._observer.look()
        self._metrics.observe_poll(snapshot.taken)
        self._forgive_outage(began)
        if not settings.dry_run:
            if self._is_first:
                self._find_marked(snapshot)
            self._go_on(snapshot, settings)
        self._is_first = False
        return self._decide(began, snapshot, settings, Look.FULL)

    def _decide(self, began: float, snapshot: Snapshot, settings: Settings, look: Look) -> Report:
        state = self._journal.state
        now = self._clock()
        scene = self._scenes[look] = Scene(snapshot, self._scenes.get(look))
        ledger = state.ledger(settings.rules.methods)
        suggested = plan(snapshot, ledger, settings.rules, now, scene)
        conditions = Conditions(settings.max_age, paused=state.pause is not None)
        verdict = judge(suggested, snapshot, ledger, settings.rules, now, conditions, scene)
        if look is Look.URGENT:
            # Other waiting jobs were not seen now: what is to be done for them is for the next full look.
            verdict = Verdict(tuple(reclaim for reclaim in verdict.reclaims if reclaim.urgent), (), ())
            suggested = replace(suggested, starts=(), holds=(), releases=(), ranks=())
        else:
            self._note_refusals(verdict, now)
        text = sentence(suggested, verdict, state, settings.dry_run)
        decided = self._clock()
        if not settings.dry_run:
            self._enact(suggested, verdict, self._picture(snapshot), settings, look)
            self._journal.compact_if_large()
        return Report(began, text, settings.rules, snapshot, suggested, verdict, seen=now, decided=decided)

    # -- what was begun before --------------------------------------------------------------------------------
    def _forgive_outage(self, now: float) -> None:
        """Time in which Slurm was away does not count against victims or beneficiaries."""
        if self._away_since is None:
            return
        away = now - self._away_since
        stops = self._journal.state.stops.values()
        records = [StopChanged(with_clock_moved(stop, away)) for stop in stops]
        if records:
            self._journal.write(*records)
        self._away_since = None

    def _find_marked(self, snapshot: Snapshot) -> None:
        """After a start: suspended jobs that carry our mark, though the journal does not know them (it was lost)."""
        state = self._journal.state
        known = {ref for stop in state.stops.values() for ref in stop.refs}.union(state.stopped)
        lost = [
            JobStopped(job.ref, self._clock(), SUSPEND.name, "")
            for job in snapshot.jobs.values()
            if job.state is JobState.SUSPENDED and job.ref not in known and job.admin_comment.startswith(STOPPED_MARK)
        ]
        if lost:
            self._journal.write(*lost)

    def _go_on(self, snapshot: Snapshot, settings: Settings) -> None:
        picture = self._picture(snapshot)
        for _, stop in sorted(self._journal.state.stops.items()):
            self._conductor.advance(stop, picture, settings)
        found = reconcile(self._journal.state, picture, self._clock(), settings)
        if found.records:
            self._journal.write(*found.records)
        self._hands.give(found.orders, picture, settings.nodes)
        self._story.tell(found.events)
        self._story.tell_costs(found.costs)
        for paid in found.costs:
            self._metrics.observe_cost(paid)

    def _picture(self, snapshot: Snapshot) -> Picture:
        return Picture(snapshot, self._hands.desk.seen)

    # -- what is decided now ------------------------------------------------------------------------------------
    def _enact(self, suggested: Plan, verdict: Verdict, picture: Picture, settings: Settings, look: Look) -> None:
        """Stops first, for somebody waits for them; then what only puts things in order."""
        for reclaim in verdict.reclaims:
            self._conductor.begin(reclaim, picture, settings)
        if look is Look.URGENT:
            return
        paused = self._journal.state.pause is not None
        self._place(suggested, picture, settings)
        self._release(suggested.releases, picture)
        if paused:
            return
        self._hold(suggested.holds, picture)
        self._resume(verdict, picture, settings)
        by_nice: dict[int, list[str]] = {}
        for rank in suggested.ranks:
            by_nice.setdefault(rank.nice, []).append(rank.ref)
        give(self._gateway, [orders.SetNice(tuple(refs), nice) for nice, refs in by_nice.items()])

    def _place(self, suggested: Plan, picture: Picture, settings: Settings) -> None:
        """Jobs that left the choice of their nodes to us get nodes and licences together, before they are let go."""
        released = {change.ref for change in suggested.releases}
        wanted: list[orders.Order] = []
        for start in suggested.starts:
            job = picture.job(start.ref)
            if job is not None and job.request.unplaced and start.ref in released:
                nodes = tuple(share.node for share in start.shares)
                wanted.append(orders.Pin(start.ref, nodes, settings.books.placed(job.licenses, nodes)))
        give(self._gateway, wanted)

    def _release(self, changes: tuple[Change, ...], picture: Picture) -> None:
        """End holds of ours; their marks are taken off once they are seen ended."""
        changes = self._not_refused_lately(changes)
        if changes:
            refusals = give(self._gateway, [orders.Release(tuple(change.ref for change in changes))])
            self._tell_changes("let_go", changes, refusals, picture)

    def _hold(self, changes: tuple[Change, ...], picture: Picture) -> None:
        """An administrator's hold, marked as ours before it is set; the submit plug-in's jobs carry a mark already."""
        changes = self._not_refused_lately(changes)
        if not changes:
            return
        refs = tuple(change.ref for change in changes)
        jobs = [(ref, picture.job(ref)) for ref in refs]
        unmarked = [ref for ref, job in jobs if job is not None and not job.admin_comment.startswith(OUR_MARK)]
        wanted: list[orders.Order] = []
        if unmarked:
            wanted.append(orders.Comment(tuple(unmarked), f"{HOLD_MARK}: {TEXT[changes[0].reason]}"))
        refusals = give(self._gateway, [*wanted, orders.Hold(refs)])
        self._tell_changes("held", changes, refusals, picture)

    def _not_refused_lately(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        now = self._clock()
        self._refused_until = {ref: until for ref, until in self._refused_until.items() if until > now}
        return tuple(change for change in changes if change.ref not in self._refused_until)

    def _tell_changes(self, event: str, changes: tuple[Change, ...], refusals: list[Refusal], picture: Picture) -> None:
        """What was done goes into the stories, what Slurm refused into the log; that is not ordered again at once."""
        now = self._clock()
        for refusal in refusals:
            self._refused_until[refusal.ref] = now + REFUSED_FOR
            self._log.warning("slurm refused", order=event, job=refusal.ref, said=refusal.message)
        done = [change for change in changes if change.ref not in self._refused_until]
        jobs = [(change, picture.job(change.ref)) for change in done]
        self._story.tell(
            Event(now, change.ref, job.user if job else "", change.account, event, TEXT[change.reason])
            for change, job in jobs
        )

    def _resume(self, verdict: Verdict, picture: Picture, settings: Settings) -> None:
        """Suspended jobs run on, once their memory is back. That they do is seen, and remembered, in the next cycle;
        those whose memory came back for a turn that is over are moved out again."""
        wanted: list[Action] = []
        turns = {resume.ref for resume in verdict.resumes}
        under_way = {ref for stop in self._journal.state.stops.values() for ref in stop.refs}
        for ref, stopped in self._journal.state.stopped.items():
            job = picture.job(ref)
            if job is None or job.state is not JobState.SUSPENDED:
                continue
            method, seen = method_of(settings.methods, stopped.method), Seen(job, picture.work(ref))
            if ref in turns:
                wanted += method.bring_back(seen, cpus_free=True)
            elif ref not in under_way:
                wanted += method.keep_stopped(seen)
        resumed = tuple(ref for action in wanted if isinstance(action, orders.Resume) for ref in action.refs)
        rest = [action for action in wanted if not isinstance(action, orders.Resume)]
        self._hands.give([*rest, *([orders.Resume(resumed)] if resumed else [])], picture, settings.nodes)

    def _note_refusals(self, verdict: Verdict, now: float) -> None:
        """Refusals are recorded like acts, once for as long as they stay the same."""
        present = frozenset((refused.ref, refused.reason.value) for refused in verdict.refused)
        fresh = [r for r in verdict.refused if (r.ref, r.reason.value) not in self._refused_before]
        self._refused_before = present
        self._story.tell(Event(now, r.ref, "", r.account, "gate_refused", REFUSAL_TEXT[r.reason]) for r in fresh)
        if fresh:
            self._log.warning("safety gate refused", reasons=dict(Counter(r.reason.value for r in fresh)))


def _kind(error: GatewayError) -> str:
    if isinstance(error, GatewayTimeout):
        return "timeout"
    return "parse" if isinstance(error, ParseError) else "failed"
