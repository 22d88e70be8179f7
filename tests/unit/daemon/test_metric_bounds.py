"""Label sets are bounded, whatever accounts and comments users write."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from omfs_daemon.daemon.metric_groups.account_metrics import MOST_ACCOUNTS
from omfs_daemon.daemon.metric_groups.label_values import MOST_VALUES, OTHER
from omfs_daemon.daemon.metrics import Metrics
from omfs_daemon.daemon.poll_schedule import PollKind
from omfs_daemon.policy.arrays.usage import AccountUsage
from omfs_daemon.preemption.records import PaidCost
from tests.support.fake_site import Site
from tests.support.metric_samples import samples

HOSTILE = ['a"b', "back\\slash", "line\nbreak", "emoji 🙂", "x" * 4000, "} 1\nomfs_paused 1", "other", ""]


def values(metrics: Metrics, label: str) -> set[str]:
    return {
        sample.labels[label]
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if label in sample.labels
    }


def test_accounts_and_methods_that_users_write_make_no_series(tmp_path: Path) -> None:
    site, metrics = Site(tmp_path, hosts=2), Metrics("0.1.0")
    names = [*HOSTILE, *(f"account{number}" for number in range(200))]
    for number, name in enumerate(names):
        site.submit(name, user=name, urgent=number % 7 == 0, method=name, run_time=1)
    for _ in range(60):
        report = site.step()
        metrics.observe_report(report, PollKind.FULL, 1, site.journal.state, site.settings)
    assert report.error is None
    assert values(metrics, "account") == {"bio", "physics", "(others)"}
    assert values(site.metrics, "method") <= {"requeue", "suspend"}


@pytest.mark.parametrize("label", ["method", "reason", "outcome"])
def test_even_codes_have_a_bound(label: str) -> None:
    metrics = Metrics("0.1.0")
    for number in range(10 * MOST_VALUES):
        labels = {"method": "requeue", "reason": "entitled", "outcome": "started"} | {label: f"code{number}"}
        metrics.count_preemption("omfs", **labels)
    assert len(values(metrics, label)) == MOST_VALUES + 1
    of_others = [value for name, value in samples(metrics).items() if OTHER in name and "_total" in name]
    assert of_others == [9 * MOST_VALUES]


def test_methods_of_costs_and_kinds_of_errors_have_a_bound() -> None:
    metrics = Metrics("0.1.0")
    for number in range(2 * MOST_VALUES):
        metrics.observe_cost(PaidCost(1.0, "7", "ann", "bio", f"m{number}", "out", 2.0, 1.5, 600, 3.0))
        metrics.slurm.count_error(f"kind{number}")
    assert len(values(metrics, "method")) == len(values(metrics, "kind")) == MOST_VALUES + 1


def test_the_smallest_of_too_many_accounts_are_added_up() -> None:
    metrics = Metrics("0.1.0")
    rows = [AccountUsage(f"a{number}", "", number, 2, 1, 0, 1) for number in range(MOST_ACCOUNTS + 10)]
    rows.append(AccountUsage(OTHER, "", 7, 2, 1, 0, 1))
    for _ in range(2):
        metrics.accounts.observe(rows, {"a3": {"17"}, "a400": {"18"}}, 100.0)
    metrics.accounts.observe(rows, {"a3": {"17"}, "a400": {"18"}}, 130.0)
    seen = samples(metrics)
    assert len(values(metrics, "account")) == MOST_ACCOUNTS + 1
    assert seen["omfs_entitled_cpus{other}"] == sum(range(10)) + 7
    assert seen["omfs_used_cpus{other}"] == 2 * 11
    assert seen["omfs_entitled_wait_seconds{other}"] == seen["omfs_entitled_wait_seconds{a400}"] == 30
    metrics.accounts.observe(rows[-2:], {}, 140.0)
    assert values(metrics, "account") == {"a509", OTHER}


def test_hostile_text_stays_one_value_of_its_label() -> None:
    metrics = Metrics("0.1.0")
    metrics.accounts.observe([AccountUsage(name, "", 1, 0, 0, 0, 0) for name in HOSTILE], {}, 1.0)
    assert values(metrics, "account") == set(HOSTILE)
    assert samples(metrics)["omfs_paused{}"] == 0
