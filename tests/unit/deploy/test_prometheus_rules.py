"""Rules, their tests, and the runbook belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from omfs_daemon.cli.main import app
from tests.support.full_metrics import full_metrics, series_names
from tests.support.monitoring_files import PROMETHEUS, RUNBOOK, metrics_in, recorded_in, rules
from tests.unit.daemon.test_events_documented import rows

ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
RECORDS = {rule["record"]: rule["expr"] for rule in rules("recording.yml")}
OPERATORS_TOOLS = {"scontrol", "squeue", "sdiag", "sacctmgr", "sinfo", "systemctl"}


def entries() -> dict[str, str]:
    """The alerts of the runbook with what it says about them."""
    section = RUNBOOK.read_text().split("\n## Alerts\n")[1].split("\n## ")[0]
    _, *parts = re.split(r"^### (\w+)\n", section, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_each_alert_has_its_entry_and_names_it() -> None:
    assert set(entries()) == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"**Means:**", "**Do:**"} <= set(re.findall(r"\*\*\w+:\*\*", entries()[name])), name


def test_each_warning_and_error_of_the_log_has_its_row() -> None:
    section = RUNBOOK.read_text().split("\n## Log events\n")[1]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    logged = [event.split("`")[1] for event, level, *_ in rows("Log") if level in ("warning", "error")]
    assert [row[0].strip("`") for row in found] == logged
    assert [row[0] for row in found if len(row) != 3 or not all(row)] == []


def test_the_commands_of_the_runbook_exist() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    text = RUNBOOK.read_text()
    named = set(re.findall(r"`omfs ([a-z]+)", text))
    assert len(named) > 8
    assert named <= set(commands)
    others = {word for word in re.findall(r"`(s[a-z]+)[ `]", text) if "_" not in word}
    assert others == OPERATORS_TOOLS & others and others


@pytest.mark.parametrize("file", ["alerts.yml", "recording.yml"])
def test_each_metric_in_the_rules_exists(file: str, tmp_path: Path) -> None:
    known = series_names(full_metrics(tmp_path))
    for rule in rules(file):
        named = metrics_in(rule["expr"])
        assert named <= known, rule
        assert recorded_in(rule["expr"]) <= set(RECORDS), rule
        assert named or recorded_in(rule["expr"]) or "up{" in rule["expr"], rule


def test_each_alert_is_tried_firing_and_silent() -> None:
    tried = yaml.safe_load((PROMETHEUS / "tests" / "alerts.yml").read_text())["tests"]
    cases = [case for test in tried for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case["exp_alerts"]}
    silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert firing == silent == set(ALERTS)


def test_each_recording_rule_is_tried() -> None:
    tried = yaml.safe_load((PROMETHEUS / "tests" / "recording.yml").read_text())["tests"]
    assert {case["expr"] for test in tried for case in test["promql_expr_test"]} == set(RECORDS)
