"""Reading the page for Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from omfs_daemon.daemon.metrics import Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """``name{values of the labels, by label}`` to value."""
    return {
        f"{sample.name}{{{','.join(value for _, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }
