"""The expressions of a dashboard, as Prometheus gets them from Grafana."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """With values for the variables, longest name first: ``$__range_s`` begins with ``$__range``."""
    for name in sorted(variables, key=len, reverse=True):
        expression = expression.replace(f"${name}", variables[name])
    return expression


def usual_variables(account: str = "", rate: str = "1m", length: str = "1h") -> dict[str, str]:
    """All instances, one ``account``; ``rate``: the interval of rates; ``length``: that of the dashboard."""
    return {"instance": ".*", "account": account, "__rate_interval": rate, "__range": length}


def panel_expressions(panel: Mapping[str, Any], variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """Expression and legend of each query of a panel."""
    return [(filled(target["expr"], variables), target["legendFormat"]) for target in panel["targets"]]
