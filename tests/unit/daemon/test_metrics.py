"""The page for Prometheus: what happened and how it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.preemption.records import PaidCost
from omfs_daemon.testing.fake_slurm.fake_gateway import Fault
from tests.support.fake_site import Site, site_rules
from tests.support.metric_samples import samples


def row(account: str, entitled: int = 8, used: int = 12) -> AccountUsage:
    return AccountUsage(account, "", entitled, used, borrowed=4, lent=1, pending=3)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, site_rules(), hosts=2)


def watched(site: Site, metrics: Metrics) -> Callable[[], dict[str, float]]:
    """Runs a cycle and returns the samples after it."""

    def step(seconds: float = 0.5) -> dict[str, float]:
        report = site.step(seconds)
        metrics.observe_report(report, PollKind.FULL, 3, site.journal.state, site.settings)
        return samples(metrics)

    return step


def test_accounts_show_and_vanish_with_their_series() -> None:
    metrics = Metrics("0.1.0", "22.05.8")
    metrics.accounts.observe([row("bio"), row("physics")], {}, 1.0)
    seen = samples(metrics)
    assert seen["omfs_entitled_cpus{bio}"] == 8
    assert seen["omfs_used_cpus{bio}"] == 12
    assert seen["omfs_borrowed_cpus{physics}"] == 4
    assert seen["omfs_lent_cpus{bio}"] == 1
    assert seen["omfs_pending_cpus{bio}"] == 3
    metrics.accounts.observe([row("bio", used=2)], {}, 2.0)
    assert samples(metrics)["omfs_used_cpus{bio}"] == 2
    assert "physics" not in metrics.text()


def test_the_longest_wait_of_an_accounts_jobs_counts_as_long_as_they_wait() -> None:
    metrics, rows = Metrics("0.1.0"), [row("bio"), row("physics")]
    metrics.accounts.observe(rows, {"bio": {"1"}}, 100.0)
    metrics.accounts.observe(rows, {"bio": {"1", "2"}}, 160.0)
    assert samples(metrics)["omfs_entitled_wait_seconds{bio}"] == 60
    metrics.accounts.observe(rows, {"bio": {"2"}}, 170.0)
    seen = samples(metrics)
    assert (seen["omfs_entitled_wait_seconds{bio}"], seen["omfs_entitled_wait_seconds{physics}"]) == (10, 0)
    metrics.accounts.observe(rows, {}, 180.0)
    assert samples(metrics)["omfs_entitled_wait_seconds{bio}"] == 0


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
    assert (seen["omfs_preemption_size_bytes_sum{pageout}"], seen["omfs_preemption_lost_seconds_sum{pageout}"]) == (
        600,
        3.0,
    )
    assert seen["omfs_preemption_size_bytes_count{pageout}"] == 1


def test_what_happened_is_counted() -> None:
    metrics = Metrics("0.1.0")
    for _ in range(2):
        metrics.count_preemption(policy="omfs", method="requeue", reason="entitled", outcome="started")
    metrics.observe_reclaim(0.3)
    metrics.slurm.count_error("timeout")
    metrics.slurm.observe_versions("0.1.0", "22.05.8")
    seen = samples(metrics)
    assert seen["omfs_preemptions_total{requeue,started,omfs,entitled}"] == 2
    assert seen["omfs_reclaim_latency_seconds_sum{}"] == 0.3
    assert seen["omfs_slurm_errors_total{timeout}"] == 1
    assert [name for name in seen if name.startswith("omfs_build_info")] == ["omfs_build_info{22.05.8,0.1.0}"]


def test_two_daemons_in_one_process_do_not_meet() -> None:
    first, second = Metrics("1"), Metrics("2")
    first.slurm.count_error("odd")
    assert "odd" in first.text() and "odd" not in second.text()


def test_files_are_measured_when_the_page_is_read(tmp_path: Path) -> None:
    metrics = Metrics("0.1.0", state_dir=tmp_path)
    assert samples(metrics)["omfs_journal_bytes{}"] == 0
    (tmp_path / "journal").write_bytes(b"x" * 700)
    (tmp_path / "history.sqlite").write_bytes(b"x" * 40)
    (tmp_path / "history.sqlite-wal").write_bytes(b"x" * 2)
    seen = samples(metrics)
    assert (seen["omfs_journal_bytes{}"], seen["omfs_history_bytes{}"]) == (700, 42)
    assert seen["omfs_state_dir_free_bytes{}"] > 0


def test_a_cycle_shows_how_it_stands(site: Site) -> None:
    step = watched(site, Metrics("0.1.0"))
    seen = step()
    assert seen["omfs_slurm_calls_total{}"] == 3
    assert seen["omfs_cycle_duration_seconds_count{}"] == seen["omfs_poll_duration_seconds_count{}"] == 1
    assert seen["omfs_last_successful_poll_timestamp_seconds{}"] == site.now - 0.5
    assert (seen["omfs_blind{}"], seen["omfs_paused{}"], seen["omfs_dry_run{}"]) == (0, 0, 0)
    assert seen["omfs_entitlement_promise_seconds{}"] == 0 + 60 + 60
    assert seen["omfs_entitled_cpus{bio}"] == 4


def test_a_slurm_that_does_not_answer_makes_it_blind(site: Site) -> None:
    step = watched(site, Metrics("0.1.0"))
    step()
    last = site.now - 0.5
    site.gateway.faults.inject(Fault.DEAD)
    seen = step()
    assert (seen["omfs_blind{}"], seen["omfs_last_successful_poll_timestamp_seconds{}"]) == (1, last)
    assert sum(value for name, value in seen.items() if name.startswith("omfs_slurm_errors_total")) == 1
    site.gateway.faults.clear()
    assert step()["omfs_blind{}"] == 0


def test_a_preempted_job_and_how_often(site: Site) -> None:
    metrics = site.metrics
    step = watched(site, metrics)
    for node in ("n1", "n2"):
        site.submit("bio", on=node, run_time=500)
    step()
    first = site.submit("physics", run_time=500)
    seen = step()
    assert (seen["omfs_preemptions_under_way{}"], seen["omfs_entitled_wait_seconds{physics}"]) == (1, 0)
    while not site.runs(first):
        step()
    seen = step()
    assert (seen["omfs_job_preemptions_max{}"], seen["omfs_jobs_preempted{}"]) == (1, 1)
    assert (seen["omfs_jobs_set_apart{}"], seen["omfs_entitled_wait_seconds{physics}"]) == (0, 0)
    assert seen["omfs_preemptions_total{requeue,started,omfs,entitled}"] == 1
    site.now += 3601
    assert step()["omfs_job_preemptions_max{}"] == 0


def test_urgent_jobs_by_start_and_slowdown(site: Site) -> None:
    step = watched(site, site.metrics)
    for node in ("n1", "n2"):
        site.submit("bio", on=node, run_time=500)
    before = step()
    assert (before["omfs_urgent_jobs_waiting{}"], before["omfs_urgent_start_latency_seconds_count{}"]) == (0, 0)
    urgent = site.submit("physics", urgent=True, run_time=10)
    assert step()["omfs_urgent_jobs_waiting{}"] == 1
    while not site.runs(urgent):
        seen = step()
    seen = step()
    assert (seen["omfs_urgent_jobs_waiting{}"], seen["omfs_urgent_start_latency_seconds_count{}"]) == (0, 1)
    assert seen["omfs_urgent_slowdown_max_ratio{}"] == 0
    while site.job(urgent).runs:
        seen = step()
    seen = step()
    assert seen["omfs_urgent_slowdown_ratio_count{}"] == 1
    assert 1 <= seen["omfs_urgent_slowdown_max_ratio{}"] < 2


def test_urgent_jobs_that_ran_before_the_daemon_are_not_counted(site: Site) -> None:
    site.submit("physics", urgent=True, run_time=1)
    site.run(2)
    step = watched(site, Metrics("0.1.0"))
    step()
    seen = step(5)
    assert seen["omfs_urgent_start_latency_seconds_count{}"] == 0
