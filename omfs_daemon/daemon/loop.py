"""The loop around the cycle: poll, rest, heartbeat, metrics, log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from math import inf
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.admission_file import ADMISSION_FILE, write_admission
from omfs_daemon.daemon.api.cycle_report import CycleReport, LatestPoll
from omfs_daemon.daemon.cycle import Cycle, Polled
from omfs_daemon.daemon.heartbeat import beat
from omfs_daemon.daemon.loop_events import LoopEvents
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.poll_schedule import LOOK_FOR, POLL_AGAIN, PollKind, PollSchedule
from omfs_daemon.daemon.private_jobs import hides_jobs
from omfs_daemon.daemon.start_check import StartCheck
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.slurm.call_counter import CallCounter

BEAT_EVERY = 2.0
"""Seconds between two heartbeats while nothing happens; to the submit plug-in, ten without one mean a dead daemon."""


class Clocks(NamedTuple):
    """The loop rests by the monotonic one, so that a system clock that is set back does not prolong that."""

    system: Callable[[], float]
    monotonic: Callable[[], float]


class Loop:
    """Runs cycles until it is ended.

    ``lock`` is held during a cycle. ``show_life``: tells the failsafe that the daemon lives at this time.
    ``config`` and ``settings`` return those in force.
    """

    def __init__(
        self,
        *,
        cycle: Cycle,
        start_check: StartCheck,
        latest: LatestPoll,
        events: LoopEvents,
        calls: CallCounter,
        journal: Journal,
        metrics: Metrics,
        notifier: Notifier,
        show_life: Callable[[float], None],
        config: Callable[[], Config],
        settings: Callable[[], Settings],
        lock: Lock,
        clocks: Clocks,
    ) -> None:
        self.start_check = start_check
        self.events = events
        self._cycle = cycle
        self._latest = latest
        self._calls = calls
        self._journal = journal
        self._metrics = metrics
        self._notifier = notifier
        self._show_life = show_life
        self._config = config
        self._settings = settings
        self.lock = lock
        self._clocks = clocks
        self._log = structlog.get_logger("omfsd")
        self._poll_schedule = PollSchedule()

    def serve(self, reload: Callable[[], None]) -> None:
        """Run cycles until ``events.is_over``; ``reload`` is called after the rest that SIGHUP interrupts, and before
        the first cycle if it came earlier."""
        poll, reloading = PollKind.FULL, self.events.signals.reloading
        while not self.events.is_over:
            if reloading.is_set():
                reloading.clear()
                reload()
            report = self.once(poll)
            poll = self._rest(report)

    def _rest(self, report: CycleReport) -> PollKind:
        """Wait until the next poll is due, with heartbeats; returns its kind. A signal or a change calls for a full
        poll as soon as possible, a touched wake file for an urgent one where that is faster."""
        self._notifier.alive(report.summary)
        events, beaten = self.events, self._clocks.monotonic()
        while True:
            events.wake.clear()
            now = self._clocks.monotonic()
            following = self._poll_schedule.next(
                now,
                self._config().slurm.poll_seconds,
                bool(self._journal.state.preemptions),
                events.is_touched,
                events.is_changed,
                self._cycle.has_urgent_polls,
                self._due_at(),
                events.touched_later_at,
            )
            if now >= following.at or events.is_interrupted:
                break
            if now - beaten >= BEAT_EVERY:
                beaten = now
                if not self.start_check.why_not_to_act():
                    self._beat(report)
                self._notifier.alive(report.summary)
            events.wake.wait(min(following.at - now, BEAT_EVERY))
        poll = PollKind.FULL if events.is_interrupted else following.poll
        events.begin_poll(poll)
        return poll

    def _due_at(self) -> float:
        """When something is to be decided although nothing happens, by the monotonic clock."""
        now, plan = self._clocks.monotonic(), self._latest.report.plan
        return now + plan.next_due - self._clocks.system() if plan is not None else inf

    def once(self, poll: PollKind = PollKind.FULL) -> CycleReport:
        """One cycle, with its heartbeat, metrics, and log lines. While all jobs are polled, urgent jobs do not wait,
        unless the poll before was for nothing: preemptions under way go on after a full poll only."""
        began, called = self._clocks.monotonic(), self._calls.number
        if poll is PollKind.URGENT or self._poll_schedule.was_in_vain or not self._cycle.has_urgent_polls:
            return self._once(poll, began, called)
        woken_at = self.events.woken_at
        with ThreadPoolExecutor(1, thread_name_prefix="omfs-poll") as aside:
            polled = aside.submit(self._cycle.observe)
            polled.add_done_callback(lambda _: self.events.wake.set())
            begun = self._serve_urgent(polled)
        if begun is None:
            self.events.woken_at = woken_at
            return self._once(poll, began, called, polled.result)
        # What was polled is older than what has, or may have, been ordered: nothing is concluded from it.
        ended, rate = self._clocks.monotonic(), self._config().slurm.calls_per_second
        calls, failed = self._calls.number - called, polled.exception() is not None
        self._poll_schedule.polled(poll, began, ended, calls, rate, failed=failed, in_vain=True)
        return begun

    def _serve_urgent(self, polled: Future[Polled]) -> CycleReport | None:
        """Urgent polls until all jobs have been polled; the last report of one that gave orders, or may have before it
        failed."""
        events, begun = self.events, None
        while not polled.done():
            events.wake.clear()
            now, is_touched = self._clocks.monotonic(), events.is_touched
            due = max(self._poll_schedule.urgent_at, now if is_touched else self._poll_schedule.again_at)
            if due > now:
                if not polled.done():
                    events.wake.wait(min(due - now, BEAT_EVERY))
                continue
            events.begin_poll(PollKind.URGENT)
            report = self._once(PollKind.URGENT, now, self._calls.number)
            if report.verdict is None:
                begun = report if report.error is not None else begun
            elif report.verdict.preemptions or (report.plan and report.plan.starts):
                begun = report
        return begun

    def _once(
        self, poll: PollKind, began: float, called: int, observed: Callable[[], Polled] | None = None
    ) -> CycleReport:
        with self.lock:
            report = self.start_check.refused() or self._cycle.run(poll, observed)
            previous = self._latest.report
            if poll is PollKind.FULL or report.error is not None:  # else the last full poll is what views show
                self._latest.report = report if report.snapshot else _carried(report, previous)
            if report.error is None and poll is PollKind.FULL:
                self._latest.last_poll = report.at
                self._latest.hides_jobs = hides_jobs(self._cycle.slurm_settings)
        calls, rate = self._calls.number - called, self._config().slurm.calls_per_second
        search, ended = self._search_after(report, poll), self._clocks.monotonic()
        preempts = report.verdict is not None and bool(report.verdict.preemptions)
        failed, needs_full = report.error is not None, report.needs_full
        blind = needs_full and report.plan is None
        self._poll_schedule.polled(
            poll, began, ended, calls, rate, search, needs_full, preempts, failed=failed, blind=blind
        )
        self._beat(report, poll is PollKind.FULL)
        self._metrics.observe_report(report, poll, calls, self._journal.state, self._settings())
        self._log_cycle(report, poll, previous)
        if poll is PollKind.FULL and report.snapshot is not None:
            for observe in self._latest.observers:
                observe(report.snapshot)
        return report

    def _search_after(self, report: CycleReport, poll: PollKind) -> float:
        """Seconds for which urgent jobs are to be looked for again: what woke the daemon may not be listed yet,
        whatever else was found, and an urgent poll ends at the first one."""
        if self.events.woken_at is not None:
            return LOOK_FOR
        return POLL_AGAIN if poll is PollKind.URGENT and report.plan is not None else 0.0

    def _log_cycle(self, report: CycleReport, poll: PollKind, previous: CycleReport) -> None:
        """At level debug where the time went; else only what is new."""
        if report.error is None:
            self._log.debug(
                "cycle_timed",
                poll=poll.value,
                woken=self.events.woken_at,
                polled=report.at,
                observed=report.seen,
                decided=report.decided,
                ordered=report.at + report.took,
                preemptions=len(report.verdict.preemptions) if report.verdict is not None else 0,
                message=report.summary,
            )
        is_news = report.summary != previous.summary
        if poll is PollKind.URGENT:
            is_news = report.error is not None or bool(report.verdict and report.verdict.preemptions)
        if not is_news:
            return
        took = round(report.took, 4)
        if report.error is None:
            self._log.info("cycle_completed", message=report.summary, took=took)
        elif report.slurm_error:
            self._log.error("slurm_unreachable", message=report.summary, error=report.error, took=took)
        else:
            self._log.error("cycle_failed", message=report.summary, error=report.error, took=took)

    def _beat(self, report: CycleReport, is_new: bool = False) -> None:
        """Tells the failsafe that the daemon lives, and the submit plug-in that it decides and acts: otherwise that
        must not hold any job. With what ``is_new`` goes what the plug-in may let in."""
        if report.error is not None or self._settings().dry_run:
            return
        self._show_life(self._clocks.system())
        if self._journal.state.pause is not None:
            return
        daemon, snapshot, plan = self._config().daemon, report.snapshot, report.plan
        try:
            if is_new and snapshot is not None and plan is not None:
                path = daemon.run_dir / ADMISSION_FILE
                write_admission(path, snapshot, report.rules, plan.room, self._cycle.slurm_settings)
            beat(daemon.heartbeat, self._clocks.system())
        except OSError as error:
            self._log.error("heartbeat_not_written", error=str(error), message="new jobs are not held at submission")


def _carried(report: CycleReport, previous: CycleReport) -> CycleReport:
    """A failed cycle keeps the last observation for views, with its own error."""
    return replace(
        report, rules=previous.rules, snapshot=previous.snapshot, plan=previous.plan, verdict=previous.verdict
    )
