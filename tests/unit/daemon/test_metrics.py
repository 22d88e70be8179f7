"""The page for Prometheus."""

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.errors import ConfigError
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.preemption.records import PaidCost
from tests.support.waiting import LIMIT


def row(account: str, entitled: int = 8, used: int = 12) -> AccountUsage:
    return AccountUsage(account, "", entitled, used, borrowed=4, lent=1, pending=3)


def samples(metrics: Metrics) -> dict[str, float]:
    """``name{values of the labels, by label}`` to value."""
    return {
        f"{sample.name}{{{','.join(value for _, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }


def test_accounts_show_and_vanish_with_their_series() -> None:
    metrics = Metrics("0.1.0", "22.05.8")
    metrics.observe_accounts([row("bio"), row("physics")])
    seen = samples(metrics)
    assert seen["omfs_entitled_cpus{bio}"] == 8
    assert seen["omfs_used_cpus{bio}"] == 12
    assert seen["omfs_borrowed_cpus{physics}"] == 4
    assert seen["omfs_lent_cpus{bio}"] == 1
    assert seen["omfs_pending_cpus{bio}"] == 3
    metrics.observe_accounts([row("bio", used=2)])
    assert samples(metrics)["omfs_used_cpus{bio}"] == 2
    assert "physics" not in metrics.text()


def test_what_happened_is_counted() -> None:
    metrics = Metrics("0.1.0")
    for _ in range(2):
        metrics.count_preemption(policy="omfs", method="requeue", reason="entitled", outcome="done")
    metrics.observe_reclaim(0.3)
    metrics.observe_cycle(0.02)
    metrics.observe_poll(1234.5)
    metrics.observe_mode(paused=True, dry_run=False)
    metrics.count_slurm_error("timeout")
    metrics.observe_versions("0.1.0", "22.05.8")
    seen = samples(metrics)
    assert seen["omfs_preemptions_total{requeue,done,omfs,entitled}"] == 2
    assert seen["omfs_reclaim_latency_seconds_sum{}"] == 0.3
    assert seen["omfs_cycle_duration_seconds_count{}"] == 1
    assert seen["omfs_last_successful_poll_timestamp_seconds{}"] == 1234.5
    assert (seen["omfs_paused{}"], seen["omfs_dry_run{}"]) == (1, 0)
    assert seen["omfs_slurm_errors_total{timeout}"] == 1
    assert [name for name in seen if name.startswith("omfs_build_info")] == ["omfs_build_info{22.05.8,0.1.0}"]


def test_costs_are_told_apart_by_direction() -> None:
    metrics = Metrics("0.1.0")
    out = PaidCost(1.0, "7", "ann", "bio", "pageout", "out", 2.0, 1.5, 600, 3.0)
    metrics.observe_cost(out)
    metrics.observe_cost(out._replace(direction="in", seconds=4.0, lost=0.0))
    seen = samples(metrics)
    assert (seen["omfs_preempt_seconds_sum{pageout}"], seen["omfs_resume_seconds_sum{pageout}"]) == (2.0, 4.0)
    assert seen["omfs_moved_bytes_total{out,pageout}"] == seen["omfs_moved_bytes_total{in,pageout}"] == 600
    assert 'omfs_moved_bytes_total{direction="out",method="pageout"}' in metrics.text()
    assert seen["omfs_work_lost_seconds_total{pageout}"] == 3.0


def test_two_daemons_in_one_process_do_not_meet() -> None:
    first, second = Metrics("1"), Metrics("2")
    first.count_slurm_error("timeout")
    assert "timeout" not in second.text()


def test_page_is_served_until_closed() -> None:
    metrics = Metrics("0.1.0")
    with metrics.serve("127.0.0.1", 0) as page:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=LIMIT) as answer:
            assert b"omfs_build_info" in answer.read()
        with pytest.raises(ConfigError, match=r"metrics.address, metrics.port = 127.0.0.1:\d+: Address already in use"):
            metrics.serve("127.0.0.1", page.port)
    metrics.serve("127.0.0.1", page.port).close()
