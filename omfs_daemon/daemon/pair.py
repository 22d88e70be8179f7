"""omfsd as one of two: stands by until it has the lease, acts until that is over, and stands by again."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from omfs_daemon import __version__
from omfs_daemon.config.load import load
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.callers import operators
from omfs_daemon.daemon.api.listening import listening
from omfs_daemon.daemon.api.status_view import PairView
from omfs_daemon.daemon.at_start import changed_at_start
from omfs_daemon.daemon.heartbeat import EPOCH_FILE, write_for_slurmctld
from omfs_daemon.daemon.leadership.candidate import CHECKED_WITHIN, Candidate
from omfs_daemon.daemon.leadership.controller_watch import ControllerWatch
from omfs_daemon.daemon.leadership.failed_turns import FailedTurns
from omfs_daemon.daemon.leadership.holder import LeaseHolder, own_holder
from omfs_daemon.daemon.leadership.leadership import ANSWERS_WITHIN, Leadership, LeaseLost, since_boot
from omfs_daemon.daemon.leadership.lease import LeaseDecision, Stand
from omfs_daemon.daemon.leadership.lease_directory import LeaseDirectory
from omfs_daemon.daemon.leadership.shared_state import make_state, why_unread
from omfs_daemon.daemon.leadership.standby_answers import StandbyAnswers
from omfs_daemon.daemon.leadership.timed_calls import TimedCalls
from omfs_daemon.daemon.leadership.turn import Turn
from omfs_daemon.daemon.metric_groups.pair_metrics import PairMetrics
from omfs_daemon.daemon.metrics_page import MetricsPage
from omfs_daemon.daemon.process import Service
from omfs_daemon.daemon.root_process.own_user import make_directories
from omfs_daemon.daemon.root_process.root_client import RootClient
from omfs_daemon.daemon.signals import Signals
from omfs_daemon.daemon.store.directory_lock import DirectoryLock
from omfs_daemon.daemon.systemd_notify import Notifier
from omfs_daemon.errors import ConfigError, OmfsError
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import Gateway

LOOKS_EVERY = 1.0

COPIED_WITHIN = 10.0
"""Seconds for the copy of the last epoch's state: less than FRESH, since the lease is not renewed meanwhile."""


class Pair:
    """``shared``: ``daemon.shared_directory``. ``cluster``: as Slurm says, "" if it does not answer yet."""

    def __init__(
        self,
        config: Config,
        shared: Path,
        path: Path,
        gateway: Gateway,
        root: RootClient | None,
        cluster: str,
    ) -> None:
        self._config = config
        self._path = path
        self._gateway = gateway
        self._root = root
        self._cluster = cluster
        self._host = socket.gethostname()
        self._calls = TimedCalls(ANSWERS_WITHIN)
        self._directory = LeaseDirectory(shared)
        self._leadership: Leadership | None = None
        self._failed = FailedTurns()
        self._epoch = 0
        self._decision = LeaseDecision(Stand.STAND_BY, "")
        self._differed: tuple[str, str] | None = None
        """This configuration and that of the active omfsd, if they differed when this was last said."""
        self._metrics = PairMetrics(self._is_active, lambda: self._epoch)
        self._log = structlog.get_logger("lease")

    def serve(self) -> int:
        """Until SIGTERM or SIGINT; returns the exit code."""
        make_directories(self._config.daemon)
        with ExitStack() as opened:
            opened.callback(DirectoryLock(self._config.daemon.state_dir, "pair.lock").close)
            watch = ControllerWatch(self._ping, self._host)
            opened.callback(watch.close)
            signals = Signals()
            signals.catch()
            while True:
                taken = self._stand_by(watch, signals)
                if taken is None or self._act(taken, signals):
                    return 0

    def _ping(self) -> str:
        slurm = self._config.slurm
        return run_command(["scontrol", "ping"], timeout=slurm.timeout_seconds, conf=slurm.conf, check=False).stdout

    def _is_active(self) -> bool:
        leadership = self._leadership
        return leadership is not None and leadership.is_fresh

    def _own(self) -> LeaseHolder:
        return own_holder(self._config, self._host)

    def _unfit(self) -> str:
        """Why this omfsd could not act now, "" if it could."""
        return self._failed.why_not_yet or why_unread(self._config.daemon, self._cluster)

    # -- standing by ----------------------------------------------------------------------------------------------
    def _stand_by(self, watch: ControllerWatch, signals: Signals) -> Leadership | None:
        """The lease; None once a signal ends it."""
        notifier, daemon, metrics = Notifier(), self._config.daemon, self._config.metrics
        candidate = Candidate(
            self._directory,
            self._own,
            lambda: watch.controller,
            lambda: watch.seen_here,
            self._unfit,
            self._calls,
            TimedCalls(CHECKED_WITHIN),
        )
        answers = StandbyAnswers(self._gateway.name, self._host, lambda: self._view(candidate), time.time)
        with ExitStack() as opened:
            opened.enter_context(listening(self._config, answers, operators(None, daemon.operators_group)))
            if metrics.enabled:
                opened.callback(MetricsPage(self._registry(), metrics.address, metrics.port).close)
            notifier.ready("stands by")
            while not signals.ending.is_set():
                if signals.reloading.is_set():
                    signals.reloading.clear()
                    self._reload(notifier)
                taken = candidate.step()
                self._note(candidate)
                if taken is not None and self._waited(taken, signals, notifier):
                    return taken
                notifier.alive(candidate.decision.why)
                signals.ending.wait(LOOKS_EVERY)
            notifier.stopping()
        return None

    def _waited(self, taken: Leadership, signals: Signals, notifier: Notifier) -> bool:
        """Whether the lease is still there when the orders have ended that the one before had under way."""
        self._log.warning("lease_taken", epoch=taken.epoch, host=self._host)
        self._epoch, ends = taken.epoch, since_boot() + self._config.slurm.timeout_seconds
        try:
            path = self._config.daemon.run_dir / EPOCH_FILE
            write_for_slurmctld(path, f"{taken.first_number}\n")
            while since_boot() < ends and not signals.ending.is_set():
                taken.renew()
                notifier.alive("waits for the orders of the omfsd before")
                signals.ending.wait(LOOKS_EVERY)
            taken.renew()
        except LeaseLost as error:
            self._failed.add(str(error))
            return False
        except OSError as error:
            self._log.error("epoch_not_written", error=str(error), message="the lease is given up")
            self._failed.add(f"{self._config.daemon.run_dir}: {error.strerror or error}")
            taken.give_up()
            return False
        if signals.ending.is_set():
            taken.give_up()
            return False
        return True

    def _note(self, candidate: Candidate) -> None:
        """What is new about it."""
        self._epoch = max(self._epoch, candidate.epoch)
        self._note_configuration(candidate)
        if candidate.decision == self._decision:
            return
        self._decision = candidate.decision
        if self._decision.stand is Stand.REFUSE:
            self._log.error("lease_refused", error=self._decision.why, message="this omfsd does not act")
        elif self._decision.stand is Stand.STAND_BY:
            self._log.info("standing_by", message=self._decision.why)
        last = candidate.holder
        if last is not None and last.version != __version__:
            self._log.warning("versions_differ", active=last.version, own=__version__, host=last.host)

    def _note_configuration(self, candidate: Candidate) -> None:
        last, differ = candidate.holder, None
        if last is None or candidate.decision.stand is not Stand.STAND_BY:
            return
        if candidate.differs:
            differ = (self._own().configuration, last.configuration)
            if differ != self._differed:
                text = "this omfsd would not take over: make them the same and reload"
                self._log.warning("configurations_differ", host=last.host, message=text)
        self._differed = differ

    def _view(self, candidate: Candidate) -> PairView:
        host = candidate.holder.host if candidate.holder is not None else ""
        stand, why = candidate.decision
        text = f"takes over, {why}" if stand is Stand.TAKE else why
        return {"active": False, "host": host, "epoch": self._epoch, "text": text}

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._metrics.register(registry)
        return registry

    def _reload(self, notifier: Notifier) -> None:
        notifier.reloading()
        try:
            config = load(self._path)
            for name in changed_at_start(self._config, config)[:1]:
                raise ConfigError(f"{self._path}: {name} cannot change while omfsd runs: restart it")
            if self._root is not None:
                self._root.reload()
            self._config = config
        except OmfsError as error:
            text = "the running configuration stays in force"
            self._log.error("configuration_refused", error=str(error), message=text)
        notifier.ready("stands by")

    # -- acting ---------------------------------------------------------------------------------------------------
    def _act(self, leadership: Leadership, signals: Signals) -> bool:
        """True once a signal has ended it, False once the lease is lost."""
        daemon, shared, calls = self._config.daemon, self._directory.path, TimedCalls(COPIED_WITHIN)
        try:
            state_dir = calls.run(lambda: make_state(daemon, shared, leadership.epoch))
        except OSError as error:
            text = f"{error.filename or shared}: {error.strerror or error}"
            self._log.error("lease_refused", error=text, message="this omfsd does not act")
            self._failed.add(text)
            leadership.give_up()
            return False
        self._failed.clear()
        self._leadership = leadership
        self._metrics.takeovers += 1
        service: Service | None = None
        try:
            service = Service(
                self._config,
                self._path,
                self._gateway,
                root=self._root,
                cluster=self._cluster,
                turn=Turn(leadership, state_dir, self._host, self._metrics.register),
                signals=signals,
            )
            service.serve()
            self._config = service.config
        finally:
            if service is not None:
                service.close()
            leadership.give_up()
            self._leadership = None
        return signals.ending.is_set()
