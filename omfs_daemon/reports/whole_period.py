"""What all idle cores of a period could have done for the jobs that waited beside them, and what stood in the way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.reports.backfill_settings import BackfillSettings
from omfs_daemon.reports.log_report import LogReport
from omfs_daemon.reports.machine_use import waits_of
from omfs_daemon.simulate.kernels.idle_use_kernel import fill_with_preemptible, starts_on_idle

HOUR = 3600.0

CAUSES = ("limits", "depth", "window", "resolution", "other")
"""Why a job did not start on idle cores that would have held it: its limit is longer than its run; it stood behind more
jobs than are tested; its limit is longer than what is planned; the gap was too short; or what accounting cannot say."""


class IdleUse(NamedTuple):
    """Core hours.

    idle         of the period
    waiting      jobs that waited
    earlier      of these, how many idle cores would have held before they started
    possible     idle core hours that they would have used: at most, for what runs and ends is known in hindsight
    lost         by cause (``CAUSES``); sums up to ``possible``
    preemptible  idle core hours that waiting jobs would have used if they could be stopped for others
    stops, thrown_away  how often they would have been stopped, and the core hours lost if stopping kills
    settings     by which causes are told apart
    """

    idle: float
    waiting: int
    earlier: int
    possible: float
    lost: dict[str, float]
    preemptible: float
    stops: int
    thrown_away: float
    settings: BackfillSettings

    def values(self) -> dict[str, Any]:
        return {
            "idle_core_hours": self.idle,
            "waiting_jobs": self.waiting,
            "jobs_that_fit_earlier": self.earlier,
            "possible_core_hours": self.possible,
            "lost_core_hours": self.lost,
            "shares": {name: hours / self.possible if self.possible else 0.0 for name, hours in self.lost.items()},
            "preemptible_core_hours": self.preemptible,
            "preemptible_stops": self.stops,
            "preemptible_lost_core_hours": self.thrown_away,
            "bf_max_job_test": self.settings.max_job_test,
            "bf_window_minutes": self.settings.window / 60,
            "bf_resolution_seconds": self.settings.resolution,
            "settings_source": self.settings.source,
            "advice": list(advice(self)),
        }


def idle_use(report: LogReport, settings: BackfillSettings) -> IdleUse:
    """Each run that waited is put, in the order of eligibility, at the first time at which recorded idle cores would
    have held it to its end, once; what ran is not moved, so nobody is delayed.

    A run counts with the idle core seconds from then on, up to its own start. Whole to one cause, in this order: what a
    length as long as its limit would have left out (``limits``), then ``depth``, ``window``, ``resolution``, ``other``.
    """
    use = report.use
    runs = waits_of(report.frame, report.end).filter(
        (pl.col("cpus") > 0) & pl.col("start").is_not_null() & (pl.col("start") < report.end)
    )
    runs = runs.sort("wait_eligible", "submit", "place")
    eligible, start = (runs[name].to_numpy().astype(np.float64) for name in ("wait_eligible", "start"))
    end = runs["end"].fill_null(report.end).to_numpy().astype(np.float64)
    cpus = runs["cpus"].to_numpy()
    limit = np.maximum(runs["limit"].fill_null(np.inf).to_numpy(), end - start)
    inside = np.maximum(start, report.begin)
    by_run, by_length, ahead = starts_on_idle(
        use.time, use.idle.astype(np.int64), eligible, inside, np.maximum(end, inside), cpus, limit, np.sort(inside)
    )
    fits = np.isfinite(by_run)
    whole = _gained(by_run, inside, end, cpus, fits)
    with_limit = np.minimum(_gained(by_length, inside, end, cpus, np.isfinite(by_length)), whole)
    lost = {"limits": float((whole - with_limit).sum())}
    rest: Bools = fits & np.isfinite(by_length)
    with np.errstate(invalid="ignore"):
        early = inside - by_length
    for name, holds in (
        ("depth", ahead >= settings.max_job_test),
        ("window", limit > settings.window),
        ("resolution", early < settings.resolution),
        ("other", np.ones(len(runs), dtype=np.bool_)),
    ):
        lost[name] = float(with_limit[rest & holds].sum())
        rest &= ~holds
    done, stops, thrown = _preemptible(report, eligible, inside, cpus, end - start)
    return IdleUse(
        use.core_seconds(use.idle) / HOUR,
        int((inside > np.maximum(eligible, report.begin)).sum()),
        int(fits.sum()),
        float(whole.sum()) / HOUR,
        {name: seconds / HOUR for name, seconds in lost.items()},
        done,
        stops,
        thrown,
        settings,
    )


def _gained(fit: Floats, start: Floats, end: Floats, cpus: Any, good: Bools) -> Floats:
    """Idle core seconds from the fit on, up to the start of the recorded run, whose cores were not idle then."""
    with np.errstate(invalid="ignore"):
        seconds = np.where(good, np.minimum(end - start, start - fit), 0.0)
    return np.asarray(seconds * cpus, dtype=np.float64)


def _preemptible(
    report: LogReport, eligible: Floats, start: Floats, cpus: Any, run: Floats
) -> tuple[float, int, float]:
    use = report.use
    waited = (start > np.maximum(eligible, report.begin)) & (run > 0)
    began = np.maximum(eligible[waited], report.begin)
    # Jobs that came before the period are all there at its begin.
    order = np.argsort(began, kind="stable")
    done, stops, lost = fill_with_preemptible(
        use.time,
        use.idle.astype(np.int64),
        use.time,
        began[order],
        start[waited][order],
        cpus[waited][order],
        run[waited][order],
    )
    wide = cpus[waited][order]
    return float((done * wide).sum()) / HOUR, int(stops.sum()), float((lost * wide).sum()) / HOUR


_ADVICE = {
    "limits": "time limits longer than runs (MaxTime and DefaultTime of partitions, sbatch --time-min); "
    "tried by --lengths real beside limit",
    "depth": "jobs that stood behind bf_max_job_test = {test:,} others",
    "window": "jobs whose limit is longer than bf_window = {window:,.0f} min: Slurm plans them only up to it",
    "resolution": "gaps shorter than bf_resolution = {resolution:,.0f} s",
    "other": "what these do not explain: priorities, limits of accounts, shapes of nodes, jobs that ended unforeseen",
}


def advice(found: IdleUse) -> list[str]:
    """What would have used idle cores, the largest first, each with Slurm's parameter."""
    if not found.possible:
        return ["No job that waited would have fitted on idle cores before it started."]
    settings = found.settings
    words = {"test": settings.max_job_test, "window": settings.window / 60, "resolution": settings.resolution}
    lines = [
        f"{hours / found.possible:.0%} of it, {hours:,.0f} core hours: {_ADVICE[name].format(**words)}"
        for name, hours in sorted(found.lost.items(), key=lambda one: -one[1])
        if hours / found.possible >= 0.005
    ]
    more = found.preemptible - found.possible
    if more > 0:
        lines.append(
            f"Preemptible jobs would have used {found.preemptible:,.0f} core hours, {more:,.0f} more, with "
            f"{found.stops:,} stops ({found.thrown_away:,.0f} core hours lost if a stop kills): "
            "omfs whatif --policy omfs on the same period shows it account by account"
        )
    return lines
