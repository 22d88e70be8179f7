"""A page for Prometheus on which every metric has a value."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from omfs_daemon.cluster.snapshot import NodeRoom, Snapshot
from omfs_daemon.daemon.metric_groups.pair_metrics import PairMetrics
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.store.ended_jobs import ScoredJob
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.policy.plan import Plan
from omfs_daemon.policy.rules.classes import REGULAR, JobClassRule, Rules
from omfs_daemon.policy.rules.realtime_terms import RealtimeTerms
from omfs_daemon.predict.prediction import HowEnded
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.preemption.state import State
from omfs_daemon.slurm.node_licenses import LicenseCount
from tests.support.policy_builders import nodes, running, snapshot, tree, waiting

NOT_SERIES = ("_created",)


def full_metrics(state_dir: Path) -> Metrics:
    """As of a daemon that has done one of everything."""
    metrics = Metrics("0.1.0", "22.05.8", state_dir)
    metrics.slurm.observe_gateway("commands")
    metrics.accounts.observe([AccountUsage("bio", "", entitled=8, used=8, borrowed=0, lent=0, pending=0)], {}, 1.0)
    metrics.count_preemption("omfs", "requeue", "entitled", "started")
    metrics.observe_reclaim(0.3)
    for direction in ("out", "in"):
        metrics.observe_cost(PaidCost(1.0, "7", "ann", "bio", "pageout", direction, 2.0, 1.5, 600, 3.0, slowest=1.0))
    metrics.nodes.observe({"n1": NodeRoom({"pageout": 1 << 30})}, [LicenseCount("devices/ve", 4, 1, 0)])
    metrics.slurm.count_error("timeout")
    rules = Rules(classes=(JobClassRule("beamline", realtime=RealtimeTerms()),), methods={}, unmatched=REGULAR)
    metrics.realtime.observe(Snapshot(1.0, {}, {}, {}), Plan(1.0, 1.0), rules, State(), 0.1)
    for job in (waiting(1), running(1, start=1.0)):
        metrics.idle.observe(snapshot(nodes(1), [job]), tree(bio=50), frozenset())
    ended = ScoredJob("ann", "main", "ladder", 60.0, HowEnded.BY_ITSELF, 50.0, 90.0, 120.0, 100.0, 110.0, 130.0, 110.0)
    metrics.predict.observe(1, [ended])
    PairMetrics(lambda: True, lambda: 7).register(metrics.registry)
    return metrics


def series_names(metrics: Metrics) -> set[str]:
    """What a query can name: a histogram by the names of its three series."""
    return {
        sample.name
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if not sample.name.endswith(NOT_SERIES)
    }
