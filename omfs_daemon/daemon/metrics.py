"""Metrics for Prometheus. Job ids are never labels; an account that vanishes loses its series."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from omfs_daemon.cluster.preempt_methods import OUT
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.preemption.records import PaidCost

_RECLAIM_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_CYCLE_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class AccountGauges:
    """CPUs by account."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"omfs_{name}_cpus", text, ["account"], registry=registry)

        self._entitled = gauge("entitled", "CPUs that the account is entitled to")
        self._used = gauge("used", "CPUs allocated to the account's running jobs")
        self._borrowed = gauge("borrowed", "CPUs that the account uses above its entitlement")
        self._lent = gauge("lent", "CPUs of the account's entitlement that others use")
        self._pending = gauge("pending", "CPUs that the account's pending jobs request")
        self._present: set[str] = set()

    def observe(self, rows: Iterable[AccountUsage]) -> None:
        present = set()
        for row in rows:
            present.add(row.account)
            self._entitled.labels(row.account).set(row.entitled)
            self._used.labels(row.account).set(row.used)
            self._borrowed.labels(row.account).set(row.borrowed)
            self._lent.labels(row.account).set(row.lent)
            self._pending.labels(row.account).set(row.pending)
        for account in self._present - present:
            for gauge in (self._entitled, self._used, self._borrowed, self._lent, self._pending):
                gauge.remove(account)
        self._present = present


class CostMetrics:
    """What preemptions and returns cost, by method."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"omfs_{name}_seconds", text, ["method"], buckets=_RECLAIM_SECONDS, registry=registry)

        self._preempt = seconds("preempt", "Time from the order until a victim has freed its resources")
        self._resume = seconds("resume", "Time that a preempted job takes to compute again")
        self._delay = seconds(
            "preemption_delay", "Time that the slowest process of a job took to be moved out (UJFB, Equation 3)"
        )
        text, labels = "Memory of jobs that was moved out or in", ["method", "direction"]
        self._moved = Counter("omfs_moved_bytes", text, labels, registry=registry)
        self._lost = Counter("omfs_work_lost_seconds", "Work thrown away", ["method"], registry=registry)

    def observe(self, paid: PaidCost) -> None:
        (self._preempt if paid.direction == OUT else self._resume).labels(paid.method).observe(paid.seconds)
        if paid.size:
            self._moved.labels(paid.method, paid.direction).inc(paid.size)
        if paid.lost:
            self._lost.labels(paid.method).inc(paid.lost)
        if paid.slowest:
            self._delay.labels(paid.method).observe(paid.slowest)


class Metrics:
    """All series of one daemon, in a registry of their own."""

    def __init__(self, version: str, slurm_version: str = "") -> None:
        self.registry = CollectorRegistry()
        self._accounts = AccountGauges(self.registry)
        self._costs = CostMetrics(self.registry)
        self._preemptions = Counter(
            "omfs_preemptions",
            "Jobs that were to be preempted, by how the preemption ended",
            ["policy", "method", "reason", "outcome"],
            registry=self.registry,
        )
        self._reclaim = Histogram(
            "omfs_reclaim_latency_seconds",
            "Time from the decision to preempt until the preemptor runs",
            buckets=_RECLAIM_SECONDS,
            registry=self.registry,
        )
        self._cycle = Histogram(
            "omfs_cycle_duration_seconds",
            "Time that one cycle of the daemon takes",
            buckets=_CYCLE_SECONDS,
            registry=self.registry,
        )
        self._poll = self._gauge("last_successful_poll_timestamp_seconds", "When Slurm last answered in full")
        self._paused = self._gauge("paused", "1 while the daemon is paused")
        self._dry_run = self._gauge("dry_run", "1 if the daemon decides but gives no orders")
        self._set_aside = self._gauge("jobs_set_aside", "Jobs left to Slurm: unreadable, or of an unsupported kind")
        self._calls = Counter("omfs_slurm_calls", "Calls to Slurm, one for each job", registry=self.registry)
        self._errors = Counter("omfs_slurm_errors", "Calls to Slurm that failed", ["kind"], registry=self.registry)
        self._build = Gauge(
            "omfs_build_info",
            "Always 1; the labels name the versions that run",
            ["version", "slurm_version"],
            registry=self.registry,
        )
        self._gateway = Gauge(
            "omfs_gateway_info",
            "Always 1; the label names the gateway to Slurm",
            ["gateway"],
            registry=self.registry,
        )
        self.observe_versions(version, slurm_version)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"omfs_{name}", text, registry=self.registry)

    def observe_accounts(self, rows: Iterable[AccountUsage]) -> None:
        """Replace the values of all accounts."""
        self._accounts.observe(rows)

    def count_preemption(self, policy: str, method: str, reason: str, outcome: str) -> None:
        """One job was preempted. ``reason`` is a reason *code*, never free text."""
        self._preemptions.labels(policy, method, reason, outcome).inc()

    def observe_reclaim(self, seconds: float) -> None:
        self._reclaim.observe(seconds)

    def observe_cost(self, paid: PaidCost) -> None:
        """One preemption, or one return, of one job."""
        self._costs.observe(paid)

    def observe_cycle(self, seconds: float) -> None:
        self._cycle.observe(seconds)

    def observe_poll(self, time: float) -> None:
        """Slurm answered in full at ``time`` (seconds since the epoch)."""
        self._poll.set(time)

    def observe_set_aside(self, number: int) -> None:
        """How many jobs Slurm lists that are set aside."""
        self._set_aside.set(number)

    def observe_mode(self, paused: bool, dry_run: bool) -> None:
        self._paused.set(paused)
        self._dry_run.set(dry_run)

    def observe_versions(self, version: str, slurm_version: str) -> None:
        self._build.clear()
        self._build.labels(version, slurm_version).set(1)

    def observe_gateway(self, name: str) -> None:
        """``name``: that of the adapter, such as "commands" or "pyslurm"."""
        self._gateway.clear()
        self._gateway.labels(name).set(1)

    def count_slurm_calls(self, number: int) -> None:
        self._calls.inc(number)

    def count_slurm_error(self, kind: str) -> None:
        """``kind``: the class of the error, such as "timeout", "parse", "refused"."""
        self._errors.labels(kind).inc()

    def text(self) -> str:
        """The page as Prometheus reads it."""
        return generate_latest(self.registry).decode()

    def serve(self, address: str, port: int) -> MetricsPage:
        """Serve the page over HTTP until it is closed; ConfigError if the address cannot be had."""
        try:
            server, thread = start_http_server(port, address, registry=self.registry)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"metrics.address, metrics.port = {address}:{port}: {reason}") from error
        return MetricsPage(server, thread)


class MetricsPage:
    """The page while it is served. Close it once."""

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
