"""omfsd as a process: its files, signals, reload, and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import structlog

from omfs_daemon import __version__
from omfs_daemon.cluster.snapshot import Snapshot
from omfs_daemon.config.build import node_licenses, preempt_timeouts, rules
from omfs_daemon.config.load import check_entitlements, load, parse_config
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.answers import Answers
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.controls import DaemonControls, Tried
from omfs_daemon.daemon.api.cycle_report import CycleReport, LatestPoll
from omfs_daemon.daemon.api.listening import listening
from omfs_daemon.daemon.api.shared_core import SharedCore
from omfs_daemon.daemon.api.where_view import StartsElsewhere
from omfs_daemon.daemon.at_start import changed_at_start
from omfs_daemon.daemon.cycle import Cycle
from omfs_daemon.daemon.effects_runner import ALWAYS, OrderRight
from omfs_daemon.daemon.ended_exemptions import EndedExemptions
from omfs_daemon.daemon.leadership.fence import FencedTransport, fenced_gateway
from omfs_daemon.daemon.leadership.shared_state import files_by_directory
from omfs_daemon.daemon.leadership.turn import ActiveAnswers, Turn
from omfs_daemon.daemon.learning.other_clusters import OtherClusters
from omfs_daemon.daemon.learning.prediction_service import PredictionService, open_predictions
from omfs_daemon.daemon.learning.victim_predictions import Remaining, no_predictions
from omfs_daemon.daemon.loop import Clocks, Loop
from omfs_daemon.daemon.loop_events import LoopEvents
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.node_client.service import open_nodes, options, slurm_on_nodes
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.daemon.questions import Questions
from omfs_daemon.daemon.reloads import Reloads
from omfs_daemon.daemon.root_process.own_user import make_directories
from omfs_daemon.daemon.root_process.root_client import RootClient, node_transport
from omfs_daemon.daemon.signals import Signals
from omfs_daemon.daemon.start_check import StartCheck
from omfs_daemon.daemon.store.audit_log import AuditLog, Changer
from omfs_daemon.daemon.store.directory_lock import DirectoryLock, OrdersLock
from omfs_daemon.daemon.store.entitlement_store import CONFIGURATION, EntitlementStore, apply_change, conflict_text
from omfs_daemon.daemon.store.exemption_store import ExemptionStore
from omfs_daemon.daemon.store.file_format import HISTORY, JOURNAL, refuse_unread_files
from omfs_daemon.daemon.store.history_database import HistoryDatabase
from omfs_daemon.daemon.store.idle_hours import IdleHours
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.daemon.wakeup import Wakeup
from omfs_daemon.errors import ConfigError, GatewayError, OmfsError
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.rules.classes import Rules
from omfs_daemon.preemption.methods.node_work import NodeWorkSettings
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.slurm.call_counter import CallCounter
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.question import PERMITS

KEEP_HISTORY = 400 * 86400.0
"""Seconds; older history is deleted when the daemon starts."""


class _Stores(NamedTuple):
    """``lock``: held while what is in force changes."""

    entitlements: EntitlementStore
    exemptions: ExemptionStore
    lock: Lock


class Service:
    """One daemon: owns the state directory, runs the loop, answers on the control socket.

    ``cluster``: as Slurm says, "" if it does not answer yet; a journal of another one is refused. ``always_dry``: give
    no orders, whatever the configuration says. ``root``: what does the work that needs root; None where this process
    does it itself, if it may. ``turn``: of two daemons, what makes this the active one; it serves until that is over.
    """

    def __init__(
        self,
        config: Config,
        config_path: Path,
        gateway: Gateway,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        always_dry: bool = False,
        notifier: Notifier | None = None,
        root: RootClient | None = None,
        cluster: str = "",
        turn: Turn | None = None,
        signals: Signals | None = None,
    ) -> None:
        self.config = config
        self._turn = turn
        self._path = config_path
        self._always_dry = always_dry
        self._reloads = Reloads(notifier or Notifier(), clock)
        self._root = root
        self._open = ExitStack()
        self._latest = LatestPoll(CycleReport(clock(), "starting: Slurm has not been polled yet"))
        try:
            self._begin(gateway, cluster, clock, monotonic, signals or Signals())
        except BaseException:
            self._open.close()
            raise

    def _begin(
        self,
        gateway: Gateway,
        cluster: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        signals: Signals,
    ) -> None:
        daemon = self.config.daemon
        make_directories(daemon)
        lock = DirectoryLock(daemon.state_dir)
        self._open.callback(lock.close)
        turn, right = self._turn, ALWAYS
        state_dir = daemon.state_dir if turn is None else turn.state_dir
        for directory, files in files_by_directory(daemon.state_dir, state_dir).items():
            refuse_unread_files(directory, files)  # before any is made or converted
        audit = AuditLog(state_dir, clock)
        self._stores = _Stores(
            EntitlementStore(state_dir, self.config.all_entitlements, audit),
            ExemptionStore(state_dir, audit, clock),
            Lock(),
        )
        if conflict := self._stores.entitlements.conflict():
            structlog.get_logger("omfsd").error("entitlements_conflict", message=conflict_text(conflict))
        journal = Journal(state_dir / JOURNAL.name, cluster)
        self._open.callback(journal.close)
        self._orders = OrdersLock(daemon.state_dir)
        self._open.callback(self._orders.leave)
        history_database = HistoryDatabase(daemon.state_dir / HISTORY.name)
        self._open.callback(history_database.close)
        history_database.forget_before(clock() - KEEP_HISTORY)
        calls = CallCounter()
        self._metrics = Metrics(
            __version__,
            state_dir=daemon.state_dir,
            journal=journal.path,
            keep_idle=IdleHours(history_database.add_idle).add,
            keep_waits=history_database.add_waits,
        )
        events, state_lock = LoopEvents(clock, monotonic, signals), Lock()
        connection = node_transport(self.config, self._root)
        if turn is not None:
            gateway = fenced_gateway(gateway, turn.leadership.require)
            connection = None if connection is None else FencedTransport(connection, turn.leadership.require)
            right = OrderRight(lambda: turn.renew(events.stand_down), turn.leadership.first_number)
            turn.register(self._metrics.registry)
        self._gateway = calls.of(gateway)
        self._metrics.slurm.observe_gateway(self._gateway.name)
        self._settings = self._settings_of(self.config)
        if not self._settings.dry_run:
            self._orders.take()
        nodes = open_nodes(connection, self.config, self._settings.methods, events.change, self._nodes_up)
        self._open.callback(nodes.close)
        questions = None
        if self._root is not None:
            (daemon.run_dir / PERMITS).mkdir(exist_ok=True)
            questions = Questions(self._root.put_question, events.change)
            self._open.callback(questions.close)
        remaining: Remaining = no_predictions
        predictions = open_predictions(
            self.config,
            self._gateway,
            self._observed,
            journal,
            lambda: self._settings,
            self._metrics.predict.observe,
            clock,
        )
        if isinstance(predictions, PredictionService):
            self._open.callback(predictions.close)
            self._latest.observers.append(predictions.observe)
            remaining = predictions.remaining()
        cycle = Cycle(
            gateway=self._gateway,
            journal=journal,
            history_database=history_database,
            metrics=self._metrics,
            settings=lambda: self._settings,
            clock=clock,
            work_queue=nodes.work_queue,
            facts=nodes.facts,
            questions=questions,
            remaining=remaining,
            right=right,
        )
        self._loop = Loop(
            cycle=cycle,
            start_check=StartCheck(
                gateway=self._gateway,
                journal=journal,
                latest=self._latest,
                metrics=self._metrics,
                settings=lambda: self._settings,
                entitlements=lambda: self._stores.entitlements.entitlements,
                clock=clock,
                may_act=right.renew,
            ),
            latest=self._latest,
            events=events,
            calls=calls,
            journal=journal,
            metrics=self._metrics,
            notifier=self._reloads.notifier,
            show_life=self._orders.show_life,
            config=lambda: self.config,
            settings=lambda: self._settings,
            lock=state_lock,
            clocks=Clocks(clock, monotonic),
        )
        core = SharedCore()
        self.answers = Answers(
            gateway=self._gateway,
            latest=self._latest,
            journal=journal,
            history_database=history_database,
            entitlements=self._stores.entitlements,
            exemptions=self._stores.exemptions,
            audit=audit,
            settings=lambda: self._settings,
            probed=nodes.probed,
            predictions=predictions,
            starts_elsewhere=StartsElsewhere(OtherClusters(lambda: self.config, self._gateway, clock), core),
            core=core,
            controls=self._controls(events, state_lock),
            clock=clock,
        )
        self._latest.observers.append(EndedExemptions(self._stores.exemptions, self._exemptions_changed, clock).observe)

    def _observed(self) -> tuple[Snapshot, Plan] | None:
        report = self._latest.report
        return None if report.snapshot is None or report.plan is None else (report.snapshot, report.plan)

    def _nodes_up(self) -> list[str]:
        """In the latest observation; called from the threads of ``open_nodes``."""
        snapshot = self._latest.report.snapshot
        return [] if snapshot is None else [node.name for node in snapshot.nodes.values() if node.up]

    def _settings_of(self, config: Config) -> Settings:
        policy = config.policy
        return Settings(
            rules=self._rules_of(config),
            node_licenses=node_licenses(config),
            preempt_timeouts=preempt_timeouts(config),
            nodes=NodeWorkSettings(preempt_timeouts(config), options(config, installed()), slurm_on_nodes(config)),
            start_timeout=policy.start_timeout_seconds,
            preempt_timeout=policy.preempt_timeout_seconds,
            retry_after=policy.retry_after_seconds,
            may_ask=policy.ask_slurm and self._root is not None,
            max_age=max(30.0, 3 * config.slurm.timeout_seconds),
            dry_run=self._always_dry or config.daemon.dry_run,
        )

    def serve(self) -> int:
        """Run until one of the signals, or another daemon, ends it; returns the exit code."""
        daemon, loop, latest = self.config.daemon, self._loop, self._latest
        group = daemon.operators_group
        may_operate = lambda peer: operators(latest.slurm_uid, group)(peer)  # noqa: E731
        control = self.answers if self._turn is None else ActiveAnswers(self.answers, self._turn)
        self._open.enter_context(listening(self.config, control, may_operate))
        events, give = loop.events, None if self._root is None else self._root.give_wake_files
        wakeup = Wakeup(daemon.run_dir, events.touch, events.touch_later, give)
        self._open.callback(wakeup.close)
        loop.start_check.on_slurm_uid = wakeup.belong_to
        metrics = self.config.metrics
        if metrics.enabled:
            self._open.callback(self._metrics.serve(metrics.address, metrics.port).close)
        if isinstance(self.answers.predictions, PredictionService):
            self.answers.predictions.thread.start()
        log = structlog.get_logger("omfsd")
        log.info("daemon_started", version=__version__, gateway=self._gateway.name, dry_run=self._settings.dry_run)
        self._reloads.notifier.ready("serving: Slurm has not been polled yet")
        events.signals.wake = events.wake.set
        try:
            loop.serve(self._reload_if_good)
        finally:
            self._reloads.notifier.stopping()
            log.info(
                "daemon_stopped",
                message="jobs that it holds stay held until it starts again, or until the failsafe releases them",
            )
            self.close()
        return 0

    def once(self, poll: PollKind = PollKind.FULL) -> CycleReport:
        """One cycle."""
        return self._loop.once(poll)

    def trial(self) -> CycleReport:
        """One cycle on a copy of the state."""
        self._loop.start_check.is_trial = True
        return self._loop.once(PollKind.FULL)

    def close(self) -> None:
        """Close all files, sockets, and threads; jobs are left as they are."""
        self._open.close()

    # -- reload, changed entitlements ----------------------------------------------------------------------------
    def _reload_if_good(self) -> None:
        with suppress(OmfsError):  # logged; the old configuration stays in force
            self._reload()

    def _reload(self) -> str:
        """Put the configuration file as it is now into force; a wrong one changes nothing. Returns what is in force."""
        with self._reloads.attempt():
            config = load(self._path)
            self._check_accounts(config)
            self._take_over(config)
        structlog.get_logger("omfsd").info("configuration_loaded", file=str(self._path))
        return f"the configuration in {self._path} is in force"

    def _check_accounts(self, config: Config) -> None:
        with suppress(GatewayError):  # slurmdbd may be away: the loop reports it
            check_entitlements(config.all_entitlements, self._gateway.accounts())

    def _take_over(self, config: Config) -> None:
        for name in changed_at_start(self.config, config)[:1]:
            raise ConfigError(f"{self._path}: {name} cannot change while omfsd runs: restart it")
        if conflict := self._stores.entitlements.conflict(config.all_entitlements):
            self._stores.entitlements.configured(config.all_entitlements)  # as a restart would find them
            raise ConfigError(f"{self._path}: entitlements: {conflict_text(conflict)}")
        with self._loop.lock, self._orders_for(config):  # a cycle sends its orders by the rules of its beginning
            if self._root is not None:
                self._root.reload()
            with self._stores.lock:
                self._stores.entitlements.configured(config.all_entitlements)
                self.config = config
                self._settings = self._settings_of(config)
                if self._turn is not None:
                    self._turn.reconfigured(config)
                self._loop.start_check.again()

    def _tried(self, text: str, source: str) -> Tried:
        """What a daemon with this configuration would go by; ConfigError if it is wrong."""
        config = parse_config(text, source)
        self._check_accounts(config)
        owned, exempt = self._stores.entitlements, self._stores.exemptions.exemptions
        conflict = owned.conflict(config.all_entitlements)
        own = config.all_entitlements if conflict or owned.source == CONFIGURATION else owned.entitlements
        text = conflict_text(conflict) if conflict else ""
        return Tried(rules(config, own, exempt), changed_at_start(self.config, config), text)

    @contextmanager
    def _orders_for(self, config: Config) -> Iterator[None]:
        """Take the orders' lock before a dry run ends, and leave it after one has begun: then the failsafe can help the
        jobs that are held or preempted."""
        is_dry = self._always_dry or config.daemon.dry_run
        try:
            is_taken = not is_dry and self._orders.take()
        except OmfsError as error:
            raise ConfigError(f"{self._path}: daemon.dry_run cannot end now: {error}") from error
        try:
            yield
        except BaseException:
            if is_taken:
                self._orders.leave()
            raise
        if is_dry:
            self._orders.leave()

    def _change_entitlements(self, change: dict[str, object], who: Changer) -> list[str]:
        with self._stores.lock:
            changed = apply_change(self._stores.entitlements, change, who)
            self._settings = replace(self._settings, rules=self._rules_of(self.config))
        return changed

    def _controls(self, events: LoopEvents, lock: Lock) -> DaemonControls:
        change, tried, exempted = self._change_entitlements, self._tried, self._exemptions_changed
        refused = self._reloads.refused
        return DaemonControls(change, self._reload, refused, tried, exempted, events.change, lock)

    def _exemptions_changed(self) -> None:
        with self._stores.lock:
            self._settings = replace(self._settings, rules=self._rules_of(self.config))

    def _rules_of(self, config: Config) -> Rules:
        return rules(config, self._stores.entitlements.entitlements, self._stores.exemptions.exemptions)
