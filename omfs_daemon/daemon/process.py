"""Start, signals, reload, end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from types import FrameType
import structlog
from omfs_daemon import __version__
from omfs_daemon.config.schema import Config
from omfs_daemon.config.build import books
from omfs_daemon.config.load import check_shares
from omfs_daemon.config.load import load
from omfs_daemon.config.build import rules
from omfs_daemon.config.build import stop_timeouts
from omfs_daemon.daemon.api.status_view import account_views as answers_account_views
from omfs_daemon.daemon.api.status_view import cluster_view as answers_cluster_view
from omfs_daemon.daemon.api.entitlements_view import entitlements_view as answers_entitlements_view
from omfs_daemon.daemon.api.status_view import held_count as answers_held_count
from omfs_daemon.daemon.api.plan_view import only_of as answers_only_of
from omfs_daemon.daemon.api.history_view import past_stops as answers_past_stops
from omfs_daemon.daemon.api.status_view import pause_view as answers_pause_view
from omfs_daemon.daemon.api.plan_view import plan_view as answers_plan_view
from omfs_daemon.daemon.api.status_view import stopped_jobs as answers_stopped_jobs
from omfs_daemon.daemon.api.status_view import stops_under_way as answers_stops_under_way
from omfs_daemon.daemon.api.why_view import why_view as answers_why_view
from omfs_daemon.daemon.api.callers import Caller
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.control_socket import ControlServer
from omfs_daemon.daemon.api.history_view import costs_view
from omfs_daemon.daemon.cycle import Cycle
from omfs_daemon.daemon.api.cycle_report import Report
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.daemon.store.entitlement_store import apply
from omfs_daemon.daemon.store.entitlement_store import named
from omfs_daemon.preemption.methods.node_work import NodeTerms
from omfs_daemon.daemon.heartbeat import beat
from omfs_daemon.daemon.store.journal import Journal
from omfs_daemon.daemon.store.directory_lock import DirectoryLock
from omfs_daemon.daemon.api.methods_view import methods_now
from omfs_daemon.daemon.node_client.service import open_nodes
from omfs_daemon.daemon.node_client.service import options
from omfs_daemon.daemon.node_client.service import slurm_on_nodes
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.daemon.poll_schedule import Look
from omfs_daemon.daemon.poll_schedule import Rhythm
from omfs_daemon.daemon.api.cycle_report import sentence
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.state import Pause
from omfs_daemon.preemption.state import PauseEnded
from omfs_daemon.daemon.store.history_database import Story
from omfs_daemon.daemon.api.history_view import CostsView
from omfs_daemon.daemon.api.operations import DoneView
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
from omfs_daemon.daemon.api.history_view import HistoryView
from omfs_daemon.daemon.api.methods_view import MethodsView
from omfs_daemon.daemon.api.plan_view import PlanView
from omfs_daemon.daemon.api.status_view import StatusView
from omfs_daemon.daemon.api.why_view import WhyView
from omfs_daemon.daemon.wakeup import Wakeup
from omfs_daemon.errors import ConfigError
from omfs_daemon.errors import GatewayError
from omfs_daemon.errors import OmfsError
from omfs_daemon.preemption.methods.registry import installed
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.policy.validator import Conditions
from omfs_daemon.policy.validator import judge
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.planner import plan
from omfs_daemon.slurm.call_counter import Calls
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.releases import untried
from omfs_daemon.daemon.loop import BEAT_EVERY
from omfs_daemon.daemon.loop import _carried
from omfs_daemon.daemon.loop import refuse_unfit
from omfs_daemon.daemon.loop import _uid_in

KEEP_HISTORY = 400 * 86400.0
"""Seconds after which history is dropped, when the daemon starts."""

ONLY_AT_START = (
    ("daemon", "state_dir"),
    ("daemon", "run_dir"),
    ("daemon", "operators_group"),
    ("daemon", "log_format"),
    ("daemon", "log_level"),
    ("slurm", "gateway"),
    ("slurm", "conf"),
    ("slurm", "timeout_seconds"),
    ("metrics", "enabled"),
    ("metrics", "address"),
    ("metrics", "port"),
    ("nodes", "worker"),
    ("nodes", "command"),
    ("nodes", "fanout"),
    ("nodes", "probe_seconds"),
)
"""What is read once; a reload that would change it is refused, rather than half applied."""


class Service:
    """One daemon: owns the state directory, runs cycles, answers on the socket.

    ``always_dry``: order nothing, whatever the file says.
    """

    def __init__(
        self,
        config: Config,
        config_path: Path,
        gateway: Gateway,
        clock: Callable[[], float] = time.time,
        always_dry: bool = False,
        notifier: Notifier | None = None,
    ) -> None:
        self.config = config
        self._path = config_path
        self._calls = Calls()
        self._gateway = self._calls.of(gateway)
        self._clock = clock
        self._always_dry = always_dry
        self._notifier = notifier or Notifier()
        self._log = structlog.get_logger("omfsd")
        self._open = ExitStack()
        self._wake = Flag()
        self._ending = Flag()
        self._reload_wanted = Flag()
        self._touched = Flag()
        self._rhythm = Rhythm()
        self._touched_at: float | None = None
        self._woken_at: float | None = None
        self._state_lock = Lock()
        self._change_lock = Lock()
        self._slurm_version = ""
        self._slurm_uid: int | None = None
        self._fitness_known = False
        self._wakeup: Wakeup | None = None
        self._report = Report(clock(), "starting: Slurm has not been asked yet")
        self._last_poll: float | None = None
        self._foreseen: tuple[tuple[float, int], Plan | None] = ((0.0, 0), None)
        self._begin()

    def _begin(self) -> None:
        daemon = self.config.daemon
        _make_directory(daemon.state_dir, 0o700)
        _make_directory(daemon.run_dir, 0o755)
        lock = DirectoryLock(daemon.state_dir)
        self._open.callback(lock.close)
        self._entitlements = EntitlementStore(daemon.state_dir, self.config.shares, self._clock)
        self._journal = Journal(daemon.state_dir / "journal")
        self._open.callback(self._journal.close)
        self._story = Story(daemon.state_dir / "history.sqlite")
        self._open.callback(self._story.close)
        self._story.forget_before(self._clock() - KEEP_HISTORY)
        self._metrics = Metrics(__version__)
        self._metrics.observe_gateway(self._gateway.name)
        self._settings = self._settings_of(self.config)
        nodes = open_nodes(self.config, self._settings.methods, self._wake.set, self._nodes_up)
        self._nodes = nodes
        self._open.callback(nodes.close)
        self._cycle = Cycle(
            self._gateway,
            self._journal,
            self._story,
            self._metrics,
            lambda: self._settings,
            self._clock,
            nodes.desk,
            nodes.facts,
        )

    def _nodes_up(self) -> list[str]:
        """Of the latest picture."""
        snapshot = self._report.snapshot
        return [] if snapshot is None else [node.name for node in snapshot.nodes.values() if node.up]

    def _settings_of(self, config: Config) -> Settings:
        policy = config.policy
        return Settings(
            rules=rules(config, self._entitlements.shares),
            books=books(config),
            stop_by=stop_timeouts(config),
            nodes=NodeTerms(stop_timeouts(config), options(config, installed()), slurm_on_nodes(config)),
            start_timeout=policy.start_timeout_seconds,
            stop_timeout=policy.stop_timeout_seconds,
            retry_after=policy.retry_after_seconds,
            max_age=max(30.0, 3 * config.slurm.timeout_seconds),
            dry_run=self._always_dry or config.daemon.dry_run,
        )

    # -- the loop --------------------------------------------------------------------------------------------
    def serve(self) -> int:
        """Run until SIGTERM or SIGINT; returns the exit code."""
        self._on_signals()
        group = self.config.daemon.operators_group
        control = ControlServer(self.config.daemon.socket, self, lambda peer: operators(self._slurm_uid, group)(peer))
        control.start()
        self._open.callback(control.close)
        self._wakeup = Wakeup(self.config.daemon.run_dir, self._touch)
        self._open.callback(self._wakeup.close)
        metrics = self.config.metrics
        if metrics.enabled:
            self._open.callback(self._metrics.serve(metrics.address, metrics.port).close)
        self._log.info("omfsd serves", version=__version__, gateway=self._gateway.name, dry_run=self._settings.dry_run)
        self._notifier.ready()
        try:
            look = Look.FULL
            while not self._ending.is_set():
                report = self.once(look)
                look = self._rest(report)
                if self._reload_wanted.is_set():
                    self._reload_wanted.clear()
                    with suppress(ConfigError, GatewayError):  # told in the log; the old one stays in force
                        self._reload()
        finally:
            self._notifier.stopping()
            self._log.info("omfsd ends; jobs that it holds stay held until it is back, or until the failsafe")
            self.close()
        return 0

    def _rest(self, report: Report) -> Look:
        """Wait until the next look, with the heart beating, and return which one it is. A signal or a change makes it
        a full one as soon as may be; a touched wake file a look for urgent jobs, where that is quicker."""
        self._notifier.alive(report.sentence)
        beaten, changed = self._clock(), False
        while True:
            if self._wake.is_set():
                self._wake.clear()
                changed = True
            touched = self._touched.is_set()
            following = self._rhythm.next(
                self.config.slurm.poll_seconds,
                bool(self._journal.state.stops),
                touched,
                changed,
                self._cycle.has_urgent_looks,
            )
            now = self._clock()
            if now >= following.at or self._ending.is_set() or self._reload_wanted.is_set():
                break
            if now - beaten >= BEAT_EVERY:
                beaten = now
                self._beat(report)
                self._notifier.alive(report.sentence)
            self._wake.wait(min(following.at - now, BEAT_EVERY))
        self._woken_at = self._touched_at if self._touched.is_set() else None
        self._touched.clear()
        return following.look

    def _touch(self) -> None:
        """Something happened in Slurm."""
        if not self._touched.is_set():
            self._touched_at = self._clock()
        self._touched.set()
        self._wake.set()

    def once(self, look: Look = Look.FULL) -> Report:
        """One cycle, with its heartbeat and its sentence in the log."""
        began, called = self._clock(), self._calls.number
        with self._state_lock:
            report = self._refused() or self._cycle.run(look)
            previous = self._report
            if look is Look.FULL or report.error is not None:  # else people look at the last full picture
                self._report = report if report.snapshot else _carried(report, previous)
            if report.error is None and look is Look.FULL:
                self._last_poll = report.at
        calls, rate = self._calls.number - called, self.config.slurm.calls_per_second
        begun = report.verdict is not None and bool(report.verdict.reclaims)
        woken = self._woken_at is not None and not begun
        self._rhythm.looked(look, began, self._clock(), calls, rate, woken)
        self._metrics.count_slurm_calls(calls)
        self._beat(report)
        if look is Look.FULL:
            self._publish(report)
        self._log_times(report, look)
        is_news = report.sentence != previous.sentence
        if look is Look.URGENT:
            is_news = report.error is not None or bool(report.verdict and report.verdict.reclaims)
        if is_news:
            (self._log.info if report.error is None else self._log.error)(report.sentence, took=round(report.took, 4))
        return report

    def _log_times(self, report: Report, look: Look) -> None:
        """Where the time of a cycle went, for whoever looks for it."""
        if report.verdict is not None:
            self._log.debug(
                "cycle",
                look=look.value,
                woken=self._woken_at,
                looks=report.at,
                seen=report.seen,
                decided=report.decided,
                ordered=report.at + report.took,
                begun=len(report.verdict.reclaims),
            )

    def _beat(self, report: Report) -> None:
        """While it decides and acts; else the submit plug-in is to hold nothing."""
        if report.error is not None or self._settings.dry_run or self._journal.state.pause is not None:
            return
        try:
            beat(self.config.daemon.heartbeat, self._clock())
        except OSError as error:
            self._log.error("the heartbeat cannot be written: new jobs are not held at submit", error=str(error))

    def _publish(self, report: Report) -> None:
        self._metrics.observe_mode(self._journal.state.pause is not None, self._settings.dry_run)
        if report.plan is not None:
            self._metrics.observe_accounts(answers_account_views(report.plan.accounts, report.rules.tree))

    def _refused(self) -> Report | None:
        """Before the first cycle that finds Slurm there: whether this Slurm can be worked with at all."""
        if self._fitness_known:
            return None
        try:
            settings = self._gateway.settings()
            refuse_unfit(settings)
            check_shares(self._entitlements.shares, self._gateway.accounts())
        except GatewayError as error:
            text = f"Slurm does not answer ({error}): waiting, nothing is decided"
            return Report(self._clock(), text, error=str(error))
        except OmfsError as error:
            return Report(self._clock(), str(error), error=str(error))
        if warning := untried(settings.version):
            self._log.warning(warning)
        self._fitness_known = True
        self._slurm_version = settings.version
        self._slurm_uid = _uid_in(settings.values.get("SlurmUser", ""))
        if self._wakeup is not None and self._slurm_uid is not None:
            self._wakeup.belong_to(self._slurm_uid)
        self._metrics.observe_versions(__version__, settings.version)
        return None

    def close(self) -> None:
        """Give everything back; jobs are left as they are."""
        self._open.close()

    # -- signals and reload --------------------------------------------------------------------------------------
    def _on_signals(self) -> None:
        def end(_number: int, _frame: FrameType | None) -> None:
            self._ending.set()
            self._wake.set()

        def reload(_number: int, _frame: FrameType | None) -> None:
            self._reload_wanted.set()
            self._wake.set()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGHUP, reload)

    def _reload(self) -> str:
        """Take over the file as it is now; a bad one changes nothing. Returns what holds now."""
        self._notifier.reloading()
        try:
            config = load(self._path)
            check_shares(config.shares, self._gateway.accounts())
            self._take_over(config)
        except (ConfigError, GatewayError) as error:
            self._log.error("the running configuration stays in force", error=str(error))
            raise
        finally:
            self._notifier.ready()
        self._log.info("configuration taken over", file=str(self._path))
        return f"the configuration in {self._path} is in force"

    def _take_over(self, config: Config) -> None:
        old, new = self.config.model_dump(), config.model_dump()
        for section, name in ONLY_AT_START:
            if old[section][name] != new[section][name]:
                raise ConfigError(f"{self._path}: {section}.{name} cannot change while omfsd runs: restart it")
        with self._change_lock:
            self._entitlements.configured(config.shares)
            self.config = config
            self._settings = self._settings_of(config)

    # -- answers on the socket (other threads) ---------------------------------------------------------------------
    def status(self, caller: Caller) -> StatusView:
        report, state = self._report, self._journal.state
        return StatusView(
            version=__version__,
            time=self._clock(),
            gateway=self._gateway.name,
            slurm_version=self._slurm_version,
            paused=answers_pause_view(state),
            dry_run=self._settings.dry_run,
            last_poll=self._last_poll,
            last_error=report.error if caller.is_operator else None,
            sentence=report.sentence if caller.is_operator else "",
            cluster=answers_cluster_view(report),
            accounts=answers_account_views(report.plan.accounts, report.rules.tree) if report.plan else [],
            stops_under_way=answers_stops_under_way(state) if caller.is_operator else [],
            stopped=answers_stopped_jobs(state) if caller.is_operator else [],
            held=answers_held_count(report),
            entitlements_source=self._entitlements.source,
        )

    def plan(self, caller: Caller) -> PlanView:
        suggested = self._foresee()
        report, state, settings = self._report, self._journal.state, self._settings
        if suggested is None or report.snapshot is None:
            return PlanView(time=report.at, sentence=report.sentence, actions=[], refused=[])
        conditions = Conditions(float("inf"), paused=state.pause is not None)
        ledger = state.ledger(settings.rules.methods)
        verdict = judge(suggested, report.snapshot, ledger, settings.rules, suggested.now, conditions)
        text = sentence(suggested, verdict, state, dry_run=True)
        view = answers_plan_view(report.at, text, suggested, verdict, report.snapshot, settings.rules)
        if not caller.is_operator:
            view = answers_only_of(caller, view, report.snapshot)
        return view

    def _foresee(self) -> Plan | None:
        """What would happen now, from the latest picture; changes nothing. Made once a cycle, however many ask."""
        report, settings = self._report, self._settings
        if report.snapshot is None:
            return None
        made_for, foreseen = self._foreseen
        if made_for != (report.at, id(settings)) or foreseen is None:
            ledger = self._journal.state.ledger(settings.rules.methods)
            foreseen = plan(report.snapshot, ledger, settings.rules, self._clock())
            self._foreseen = ((report.at, id(settings)), foreseen)
        return foreseen

    def why(self, caller: Caller, job: str) -> WhyView:
        return answers_why_view(
            caller, job, self._report, self._journal.state, self._settings.rules, self._story, self._foresee()
        )

    def history(self, caller: Caller, limit: int, since: float) -> HistoryView:
        user = None if caller.is_operator else caller.user
        stops = self._story.stops(limit, since, user)
        oldest = min((stop.time for stop in stops), default=self._clock())
        return HistoryView(stops=answers_past_stops(stops, self._story.costs(oldest, user)))

    def costs(self, caller: Caller, limit: int, since: float) -> CostsView:
        return costs_view(self._story.costs(since, None if caller.is_operator else caller.user), limit)

    def methods(self, caller: Caller) -> MethodsView:
        return methods_now(self._settings, self._report.snapshot, self._nodes.probed())

    def entitlements(self, caller: Caller) -> EntitlementsView:
        return answers_entitlements_view(self._entitlements)

    def change_entitlements(self, caller: Caller, change: dict[str, object]) -> EntitlementsView:
        check_shares(named(change), self._gateway.accounts())
        with self._change_lock:
            changed = apply(self._entitlements, change, caller)
            self._settings = replace(self._settings, rules=rules(self.config, self._entitlements.shares))
        self._log.info("entitlements changed", by=caller.user, changed=changed)
        self._wake.set()
        return {**answers_entitlements_view(self._entitlements), "changed": changed}

    def pause(self, caller: Caller, reason: str) -> DoneView:
        with self._state_lock:
            self._journal.write(Pause(caller.user, self._clock(), reason))
        self._log.warning("paused", by=caller.user, reason=reason)
        return DoneView(done="paused: no job is stopped or held; stops under way are brought to their end")

    def resume(self, caller: Caller) -> DoneView:
        with self._state_lock:
            self._journal.write(PauseEnded(caller.user, self._clock()))
        self._log.warning("pause ended", by=caller.user)
        self._wake.set()
        return DoneView(done="the daemon acts again")

    def reload(self, caller: Caller) -> DoneView:
        self._log.info("reload", by=caller.user)
        return DoneView(done=self._reload())


def _make_directory(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ConfigError(f"{path}: cannot be written by user id {os.geteuid()}")


def main(config: Config, config_path: Path, once: bool, dry_run: bool) -> int:
    """Run the daemon on the cluster that the configuration names; returns the exit code."""
    from omfs_daemon.config.open_gateway import opened

    with opened(config.slurm) as (gateway, why):
        structlog.get_logger("omfsd").info("this is how Slurm is asked and told", gateway=gateway.name, why=why)
        with suppress(GatewayError):  # Slurm is away: the loop waits for it, and asks then
            refuse_unfit(gateway.settings())
        service = Service(config, config_path, gateway, always_dry=dry_run)
        try:
            if once:
                report = service.once()
                return 0 if report.error is None else 1
            return service.serve()
        finally:
            service.close()
