"""Of two daemons: which one is active. Only with ``daemon.shared_directory``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class PairMetrics(Collector):
    """Lives as long as the process, on the pages of the standby and of the active daemon. ``is_leader`` and ``epoch``
    are asked when the page is read."""

    def __init__(self, is_leader: Callable[[], bool], epoch: Callable[[], int]) -> None:
        self.takeovers = 0
        self._is_leader = is_leader
        self._epoch = epoch

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "omfs_leader", "1 while this daemon may act: its lease is fresh", value=float(self._is_leader())
        )
        yield GaugeMetricFamily("omfs_lease_epoch", "The newest epoch that this daemon has seen", value=self._epoch())
        yield CounterMetricFamily("omfs_takeovers", "How often this daemon has taken the lease", value=self.takeovers)
