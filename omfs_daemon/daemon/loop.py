"""The loop around the cycle: poll, rest, heartbeat, metrics, log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event, Lock

import structlog

from omfs_daemon import __version__
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.job_refs import brief_ref
from omfs_daemon.config.load import check_entitlements
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.cycle_report import CycleReport, LatestPoll
from omfs_daemon.daemon.api.status_view import account_views
from omfs_daemon.daemon.cycle import Cycle
from omfs_daemon.daemon.heartbeat import beat
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.poll_schedule import PollKind, PollSchedule
from omfs_daemon.daemon.store.journal import Journal, refuse_other_cluster
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.errors import ConfigError, GatewayError, OmfsError
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.slurm.call_counter import CallCounter
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.releases import untested_release

BEAT_EVERY = 2.0
"""Seconds between two heartbeats while nothing happens; to the submit plug-in, ten without one mean a dead daemon."""


class Loop:
    """Runs cycles until it is ended.

    Setting ``wake`` ends the rest: the next poll comes as soon as the poll schedule allows. ``lock`` is held during a
    cycle. ``show_life``: tells the failsafe that the daemon lives at this time. ``config``, ``settings`` and
    ``entitlements`` return those in force.
    """

    def __init__(
        self,
        *,
        cycle: Cycle,
        latest: LatestPoll,
        wake: Event,
        gateway: Gateway,
        calls: CallCounter,
        journal: Journal,
        metrics: Metrics,
        notifier: Notifier,
        show_life: Callable[[float], None],
        config: Callable[[], Config],
        settings: Callable[[], Settings],
        entitlements: Callable[[], tuple[Entitlement, ...]],
        lock: Lock,
        clock: Callable[[], float],
    ) -> None:
        self._cycle = cycle
        self._latest = latest
        self._wake = wake
        self._gateway = gateway
        self._calls = calls
        self._journal = journal
        self._metrics = metrics
        self._notifier = notifier
        self._show_life = show_life
        self._config = config
        self._settings = settings
        self._entitlements = entitlements
        self._lock = lock
        self._clock = clock
        self._log = structlog.get_logger("omfsd")
        self.on_slurm_uid: Callable[[int], None] = lambda _uid: None
        """Called once, when SlurmUser's uid is known."""
        self._is_checked = False
        self._poll_schedule = PollSchedule()
        self._ending = Event()
        self._interrupted = Event()
        self._touched = Event()
        self._touched_at: float | None = None
        self._woken_at: float | None = None

    # -- called from other threads and from signal handlers ------------------------------------------------------
    def touch(self) -> None:
        """Something happened in Slurm."""
        if not self._touched.is_set():
            self._touched_at = self._clock()
        self._touched.set()
        self._wake.set()

    def interrupt(self) -> None:
        """End the rest at once, so that ``between`` runs."""
        self._interrupted.set()
        self._wake.set()

    def check_again(self) -> None:
        """Check Slurm and the accounts before the next cycle, as at the start."""
        self._is_checked = False

    def end(self) -> None:
        """Return from ``serve`` after the cycle under way."""
        self._ending.set()
        self._wake.set()

    # -- the loop ------------------------------------------------------------------------------------------------
    def serve(self, between: Callable[[], None]) -> None:
        """Run cycles until ``end``; ``between`` is called after each rest that was interrupted."""
        poll = PollKind.FULL
        while not self._ending.is_set():
            report = self.once(poll)
            poll = self._rest(report)
            if self._interrupted.is_set():
                self._interrupted.clear()
                between()

    def _rest(self, report: CycleReport) -> PollKind:
        """Wait until the next poll is due, with heartbeats; returns its kind. A signal or a change calls for a full
        poll as soon as possible; a touched wake file for an urgent one, where that is faster."""
        self._notifier.alive(report.summary)
        beaten, changed = self._clock(), False
        while True:
            if self._wake.is_set():
                self._wake.clear()
                changed = True
            touched = self._touched.is_set()
            following = self._poll_schedule.next(
                self._config().slurm.poll_seconds,
                bool(self._journal.state.preemptions),
                touched,
                changed,
                self._cycle.has_urgent_polls,
            )
            now = self._clock()
            if now >= following.at or self._ending.is_set() or self._interrupted.is_set():
                break
            if now - beaten >= BEAT_EVERY:
                beaten = now
                self._beat(report)
                self._notifier.alive(report.summary)
            self._wake.wait(min(following.at - now, BEAT_EVERY))
        self._woken_at = self._touched_at if self._touched.is_set() else None
        self._touched.clear()
        return following.poll

    def once(self, poll: PollKind = PollKind.FULL) -> CycleReport:
        """One cycle, with its heartbeat, metrics, and log lines."""
        began, called = self._clock(), self._calls.number
        with self._lock:
            report = self._refused() or self._cycle.run(poll)
            previous = self._latest.report
            if poll is PollKind.FULL or report.error is not None:  # else the last full poll is what views show
                self._latest.report = report if report.snapshot else _carried(report, previous)
            if report.error is None and poll is PollKind.FULL:
                self._latest.last_poll = report.at
        calls, rate = self._calls.number - called, self._config().slurm.calls_per_second
        begun = report.verdict is not None and bool(report.verdict.preemptions)
        woken = self._woken_at is not None and not begun
        self._poll_schedule.polled(poll, began, self._clock(), calls, rate, woken)
        self._metrics.count_slurm_calls(calls)
        self._beat(report)
        if poll is PollKind.FULL:
            self._publish(report)
        self._log_cycle(report, poll, previous)
        return report

    def _log_cycle(self, report: CycleReport, poll: PollKind, previous: CycleReport) -> None:
        """At level debug where the time went; else only what is new."""
        if report.verdict is not None:
            self._log.debug(
                "cycle_timed",
                poll=poll.value,
                woken=self._woken_at,
                polled=report.at,
                observed=report.seen,
                decided=report.decided,
                ordered=report.at + report.took,
                preemptions=len(report.verdict.preemptions),
            )
        is_news = report.summary != previous.summary
        if poll is PollKind.URGENT:
            is_news = report.error is not None or bool(report.verdict and report.verdict.preemptions)
        if not is_news:
            return
        took = round(report.took, 4)
        if report.error is None:
            self._log.info("cycle_completed", message=report.summary, took=took)
        elif not report.slurm_answers:
            self._log.error("slurm_unreachable", message=report.summary, error=report.error, took=took)
        else:
            self._log.error("cycle_failed", message=report.summary, error=report.error, took=took)

    def _beat(self, report: CycleReport) -> None:
        """Tells the failsafe that the daemon lives, and the submit plug-in that it decides and acts: otherwise that
        must not hold any job."""
        if report.error is not None or self._settings().dry_run:
            return
        self._show_life(self._clock())
        if self._journal.state.pause is not None:
            return
        try:
            beat(self._config().daemon.heartbeat, self._clock())
        except OSError as error:
            self._log.error("heartbeat_not_written", error=str(error), message="new jobs are not held at submission")

    def _publish(self, report: CycleReport) -> None:
        self._metrics.observe_mode(self._journal.state.pause is not None, self._settings().dry_run)
        if report.plan is not None:
            self._metrics.observe_accounts(account_views(report.plan.accounts, report.rules.tree))

    def _refused(self) -> CycleReport | None:
        """Until Slurm has answered once: why no cycle can run; None once this Slurm is accepted."""
        if self._is_checked:
            return None
        try:
            settings = self._gateway.settings()
            refuse_unfit(settings)
            self._check_cluster(settings.values.get("ClusterName", ""))
        except GatewayError as error:
            text = f"Slurm does not answer ({error}): waiting, nothing is decided"
            return CycleReport(self._clock(), text, error=str(error), slurm_answers=False)
        except OmfsError as error:
            return CycleReport(self._clock(), str(error), error=str(error))
        self._check_accounts()
        self._note_dry_run()
        if warning := untested_release(settings.version):
            self._log.warning("slurm_release_untested", version=settings.version, message=warning)
        self._is_checked = True
        self._latest.slurm_version = settings.version
        self._latest.slurm_uid = uid = _uid_in(settings.values.get("SlurmUser", ""))
        if uid is not None:
            self.on_slurm_uid(uid)
        self._metrics.observe_versions(__version__, settings.version)
        return None

    def _check_cluster(self, name: str) -> None:
        if self._settings().dry_run:
            refuse_other_cluster(self._journal.path, self._journal.state, name)
        else:
            self._journal.belong_to(name)

    def _note_dry_run(self) -> None:
        state = self._journal.state
        left = {*state.held, *state.preempted, *(ref for each in state.preemptions.values() for ref in each.refs)}
        if left and self._settings().dry_run:
            text = "they stay held or preempted during a dry run: `omfs failsafe` releases them after its grace time"
            self._log.warning("dry_run_leaves_jobs", jobs=sorted(map(brief_ref, left)), message=text)

    def _check_accounts(self) -> None:
        """Neither a slurmdbd that is away nor a deleted account ends the work: entitlements may be old."""
        try:
            check_entitlements(self._entitlements(), self._gateway.accounts())
        except (ConfigError, GatewayError) as error:
            self._log.warning("accounts_not_confirmed", error=str(error), message="the entitlements stay in force")


def _carried(report: CycleReport, previous: CycleReport) -> CycleReport:
    """A failed cycle keeps the last observation for views, with its own error."""
    return replace(
        report, rules=previous.rules, snapshot=previous.snapshot, plan=previous.plan, verdict=previous.verdict
    )


def refuse_unfit(settings: SlurmSettings) -> None:
    """OmfsError under priority/basic: there the owner of a job can release any hold by ``nice=``."""
    kind = settings.values.get("PriorityType", "")
    if kind != "priority/multifactor":
        raise OmfsError(
            f"slurm.conf: PriorityType = {kind}: must be priority/multifactor (its weights may all be 0): "
            "under priority/basic the owner of a job can release any hold"
        )


def _uid_in(text: str) -> int | None:
    """The number in ``slurm(64030)``."""
    found = text[text.find("(") + 1 : text.find(")")]
    return int(found) if found.isdecimal() else None
