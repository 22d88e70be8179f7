"""The daemon itself: whether it sees and decides, how fast, its calls to Slurm, and its files."""

from __future__ import annotations

import shutil
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from omfs_daemon.daemon.api.cycle_report import ERROR_KINDS
from omfs_daemon.daemon.metric_groups.label_values import LabelValues
from omfs_daemon.daemon.store.file_format import HISTORY

_CYCLE_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class DaemonMetrics:
    """Of the process also what Prometheus's clients have in common: ``process_cpu_seconds_total`` and so on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"omfs_{name}", text, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"omfs_{name}_duration_seconds", text, buckets=_CYCLE_SECONDS, registry=registry)

        ProcessCollector(registry=registry)
        self._cycle = seconds("cycle", "Time that one cycle of the daemon takes")
        self._poll = seconds("poll", "Time that Slurm takes to answer a poll")
        self._polled = gauge("last_successful_poll_timestamp_seconds", "When Slurm last answered in full")
        self._blind = gauge("blind", "1 while cycles decide nothing: Slurm does not answer, or the cycle fails")
        self._paused = gauge("paused", "1 while the daemon is paused")
        self._dry_run = gauge("dry_run", "1 if the daemon decides but gives no orders")
        self._set_aside = gauge("jobs_set_aside", "Jobs left to Slurm: unreadable, or of an unsupported kind")
        self._promise = gauge(
            "entitlement_promise_seconds",
            "Time within which an entitled job gets its CPUs: quantum, preemption, and start at their limits",
        )

    def observe_cycle(self, seconds: float, is_blind: bool) -> None:
        self._cycle.observe(seconds)
        self._blind.set(is_blind)

    def observe_poll(self, time: float, seconds: float, set_aside: int) -> None:
        """Slurm answered in full, at ``time`` (since the epoch), and lists so many jobs that are set aside."""
        self._polled.set(time)
        self._poll.observe(seconds)
        self._set_aside.set(set_aside)

    def observe_mode(self, paused: bool, dry_run: bool, promise: float) -> None:
        self._paused.set(paused)
        self._dry_run.set(dry_run)
        self._promise.set(promise)


class SlurmCallMetrics:
    """The daemon's calls to Slurm, and what runs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._kinds = LabelValues()
        self._calls = Counter("omfs_slurm_calls", "Calls to Slurm, one for each job", registry=registry)
        self._errors = Counter("omfs_slurm_errors", "Calls to Slurm that failed", ["kind"], registry=registry)
        for kind in ERROR_KINDS:
            self._errors.labels(self._kinds.bounded(kind))  # so that a rate sees the first one
        self._build = Gauge(
            "omfs_build_info",
            "Always 1; the labels name the versions that run",
            ["version", "slurm_version"],
            registry=registry,
        )
        self._gateway = Gauge(
            "omfs_gateway_info", "Always 1; the label names the gateway to Slurm", ["gateway"], registry=registry
        )

    def count_calls(self, number: int) -> None:
        self._calls.inc(number)

    def count_error(self, kind: str) -> None:
        self._errors.labels(self._kinds.bounded(kind)).inc()

    def observe_versions(self, version: str, slurm_version: str) -> None:
        self._build.clear()
        self._build.labels(version, slurm_version).set(1)

    def observe_gateway(self, name: str) -> None:
        self._gateway.clear()
        self._gateway.labels(name).set(1)


class FileMetrics:
    """The daemon's files, measured when the page is read."""

    def __init__(self, registry: CollectorRegistry, state_dir: Path, journal_file: Path) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"omfs_{name}_bytes", text, registry=registry)

        history = [state_dir / f"{HISTORY.name}{ending}" for ending in ("", "-wal")]
        gauge("journal", "Size of the journal").set_function(lambda: _size(journal_file))
        gauge("history", "Size of the history").set_function(lambda: sum(map(_size, history)))
        gauge("state_dir_free", "Free space for journal and history").set_function(lambda: _free(state_dir))


def _size(path: Path) -> float:
    try:
        return path.stat().st_size
    except OSError:
        return 0.0


def _free(directory: Path) -> float:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return 0.0
