"""A workload that is sent to several sites: what was waited, and where (Murata et al., section III)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from omfs_daemon.accounting.arrays import Bools, Floats
from omfs_daemon.simulate.kernels.sites_kernel import NOWHERE, SiteJobs
from omfs_daemon.simulate.results.measure import strict
from omfs_daemon.simulate.results.result_files import save
from omfs_daemon.simulate.sites.choose_site import SentJobs, Site, SiteChoice, placed
from omfs_daemon.simulate.workload.workload import Workload

ESTIMATING = ("history", "oracle")
"""Choices that go by an estimate of the start."""


class SiteFigures(NamedTuple):
    """Of the jobs that were sent to a site, or to any; times in seconds. ``deviation``: of the waits; ``zero_share``:
    of jobs that did not wait; ``utilisation``: of its processors from the first submission to the last end; None: there
    was no job."""

    site: str
    jobs: int
    mean_wait: float | None
    p95_wait: float | None
    max_wait: float | None
    deviation: float | None
    zero_share: float | None
    mean_bounded_slowdown: float | None
    utilisation: float | None


@dataclass(frozen=True, slots=True, eq=False)
class SitesOutcome:
    """``run``: seconds that each job ran, at most its limit; ``sent``: by job, in the order of the workload."""

    workload: Workload
    sites: Sequence[Site]
    choice: SiteChoice
    run: Floats
    sent: SentJobs


def simulate_sites(workload: Workload, sites: Sequence[Site], choice: SiteChoice) -> SitesOutcome:
    """Each job goes to one site when it is submitted, and stays there; it ends at its limit."""
    run = np.minimum(workload.run, workload.limit)
    jobs = SiteJobs(workload.submit, workload.cpus, run, workload.limit, workload.job_name)
    return SitesOutcome(workload, sites, choice, run, placed(sites, jobs, choice))


def site_figures(outcome: SitesOutcome, bound: float) -> list[SiteFigures]:
    """Of all sites together, then of each; ``bound``: run times below it count as this in the bounded slowdown."""
    everywhere = outcome.sent.site != NOWHERE
    processors = sum(site.processors for site in outcome.sites)
    found = [_figures("all", outcome, everywhere, processors, bound)]
    for index, site in enumerate(outcome.sites):
        found.append(_figures(site.name, outcome, outcome.sent.site == index, site.processors, bound))
    return found


def _figures(name: str, outcome: SitesOutcome, mine: Bools, processors: int, bound: float) -> SiteFigures:
    if not mine.any():
        return SiteFigures(name, 0, None, None, None, None, None, None, None)
    workload, sent = outcome.workload, outcome.sent
    wait, run = (sent.start - workload.submit)[mine], outcome.run[mine]
    slowdown = np.maximum((wait + run) / np.maximum(run, bound), 1.0)
    went = sent.site != NOWHERE
    span = float((sent.start + outcome.run)[went].max() - workload.submit[went].min())
    used = float(run @ workload.cpus[mine]) / (processors * span) if span else 0.0
    return SiteFigures(
        site=name,
        jobs=int(mine.sum()),
        mean_wait=float(wait.mean()),
        p95_wait=float(np.quantile(wait, 0.95)),
        max_wait=float(wait.max()),
        deviation=float(wait.std()),
        zero_share=float((wait == 0).mean()),
        mean_bounded_slowdown=float(slowdown.mean()),
        utilisation=used,
    )


def sites_summary(outcome: SitesOutcome, figures: Sequence[SiteFigures], notes: Sequence[str]) -> dict[str, Any]:
    """summary.json."""
    found: dict[str, Any] = strict(
        {
            "workload": outcome.workload.name,
            "choose": outcome.choice.choose,
            "counts_running": outcome.choice.counts_running if outcome.choice.choose in ESTIMATING else None,
            "rejected": int((outcome.sent.site == NOWHERE).sum()),
            "sites": [one._asdict() for one in figures],
            "conventions": list(notes),
        }
    )
    return found


def write_sites(directory: Path, outcome: SitesOutcome, summary: dict[str, Any]) -> None:
    """jobs.csv and summary.json into a directory that ``prepare`` made; ConfigError if that fails."""
    jobs = sent_jobs_table(outcome)
    save(directory / "jobs.csv", lambda file: jobs.write_csv(file))
    text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
    save(directory / "summary.json", lambda file: file.write(text.encode()))


def sent_jobs_table(outcome: SitesOutcome) -> pl.DataFrame:
    """One row per job, in order of submission, in Batsim's columns as far as they have a meaning; ``site``: empty, no
    site could hold it; ``estimate``: seconds from its submission to its start there, as estimated then, however the
    site was chosen."""
    workload, sent = outcome.workload, outcome.sent
    went = sent.site != NOWHERE
    start, run = sent.start, np.where(went, outcome.run, np.nan)
    wait = start - workload.submit
    cut = workload.run > workload.limit
    names = np.array([*(site.name for site in outcome.sites), ""], dtype=np.str_)
    estimates = sent.estimates[np.arange(len(workload)), np.maximum(sent.site, 0)]
    columns = {
        "job_id": workload.job_id,
        "submission_time": workload.submit,
        "requested_number_of_resources": workload.cpus,
        "requested_time": np.where(np.isfinite(workload.limit), workload.limit, -1.0),
        "final_state": np.select([~went, cut], ["REJECTED", "COMPLETED_WALLTIME_REACHED"], "COMPLETED_SUCCESSFULLY"),
        "starting_time": start,
        "execution_time": run,
        "finish_time": start + run,
        "waiting_time": wait,
        "turnaround_time": wait + run,
        "stretch": (wait + run) / np.maximum(run, 1.0),
        "site": names[np.where(went, sent.site, len(outcome.sites))],
        "estimate": np.where(went, estimates, np.nan),
    }
    return pl.DataFrame(columns, nan_to_null=True)
