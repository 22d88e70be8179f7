"""What deploy/ has for Prometheus and Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
RUNBOOK = ROOT / "docs" / "runbook.md"

_METRIC = re.compile(r"(?<![\w:])(?:omfs|process)_\w+")
_RECORDED = re.compile(r"instance:\w+:\w+")


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of one file."""
    groups = yaml.safe_load((PROMETHEUS / "rules" / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names itself."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))


def recorded_in(expression: str) -> set[str]:
    """The recording rules that it names."""
    return set(_RECORDED.findall(expression))


def dashboards() -> dict[str, dict[str, Any]]:
    """By the name of the file, without its ending."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
