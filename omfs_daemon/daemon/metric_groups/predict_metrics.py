"""How good predictions are."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, Histogram

from omfs_daemon.daemon.learning.scores import held, start_error
from omfs_daemon.daemon.metric_groups.label_values import GaugeByLabel
from omfs_daemon.daemon.store.ended_jobs import ScoredJob

_RATIOS = (0.01, 0.03, 0.1, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 10, 30, 100)
_SECONDS = (10, 60, 300, 600, 1800, 3600, 7200, 21600, 86400, 259200)


class PredictMetrics:
    """Of jobs of which something was foreseen while they waited. ``what``: run, start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Gauge("omfs_predict_jobs", "Ended jobs from which run times are predicted", registry=registry)
        self._ratio = Histogram(
            "omfs_predict_error_ratio",
            "Predicted run time (p50) of a job that has ended, divided by its run time",
            buckets=_RATIOS,
            registry=registry,
        )
        self._start = Histogram(
            "omfs_predict_start_error_seconds",
            "Difference between the start of a job and its estimate (p50) when the job was first seen",
            buckets=_SECONDS,
            registry=registry,
        )
        text = "Share of the jobs since the daemon started that ran no longer, or started no later, than their p90"
        self._held = GaugeByLabel("predict_p90_held_ratio", text, "what", registry)
        self._sums = {"run": (0, 0), "start": (0, 0)}

    def observe(self, known: int, ended: Iterable[ScoredJob]) -> None:
        """``known``: how many are kept; ``ended``: those that have ended since the last call."""
        self._jobs.set(known)
        for job in ended:
            self._ratio.observe(max(1.0, job.p50) / max(1.0, job.run))
            self._count("run", held(job))
            error = start_error(job)
            if error is not None and job.start_p90 is not None:
                self._start.observe(error)
                self._count("start", job.start <= job.start_p90)
        self._held.replace({what: good / all_of for what, (good, all_of) in self._sums.items() if all_of})

    def _count(self, what: str, is_held: bool) -> None:
        good, all_of = self._sums[what]
        self._sums[what] = (good + is_held, all_of + 1)
