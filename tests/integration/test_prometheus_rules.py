"""Prometheus's and Alertmanager's own tools judge what deploy/prometheus has for them."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.monitoring_files import PROMETHEUS
from tests.support.waiting import LIMIT


@pytest.mark.parametrize(
    "arguments",
    [
        ("promtool", "check", "config", "prometheus.yml"),
        ("promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules/alerts.yml", "rules/recording.yml"),
        ("promtool", "test", "rules", "tests/alerts.yml", "tests/recording.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ],
    ids=["config", "rules", "tests", "alertmanager"],
)
def test_the_tools_accept_it(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(arguments, cwd=PROMETHEUS, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout + done.stderr
