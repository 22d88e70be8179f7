"""The simulation of Murata et al., section IV: which jobs there are, where they are sent, and what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from omfs_daemon.accounting.arrays import Floats
from omfs_daemon.simulate.experiments.murata.published import MEANS, POPULATION, SIGMA, SIZES, SUBMITTED, UNTIL
from omfs_daemon.simulate.kernels.sites_kernel import SiteJobs
from omfs_daemon.simulate.sites.choose_site import SentJobs, Site, SiteChoice, placed
from omfs_daemon.simulate.workload.generate import Model, generated

BIN = 1000.0
"""Seconds; of the histogram of waits (Figure 3)."""
HISTORY, HISTORY_TEXT, ROUND_ROBIN = SiteChoice("history"), SiteChoice("history", False), SiteChoice("round-robin")
SHORTEST_QUEUE, ORACLE = SiteChoice("shortest-queue"), SiteChoice("oracle")
COMPARED = (HISTORY, HISTORY_TEXT, ROUND_ROBIN, SHORTEST_QUEUE, ORACLE)
MORE_SITES = (3, 4, 8)
"""The paper's future work."""
WIDE = 16
"""Processors of each site with jobs of several processors."""
WIDE_JOBS, WIDE_LOAD = 5000, 0.5


@dataclass(frozen=True, slots=True)
class MurataRow:
    """The columns of results.csv: a run. jobs: that were done in time; waits, in seconds, are of all that started.

    counts_running  whether the rest of running jobs counts in an estimate; None: there is no estimate
    """

    run: int
    sites: int
    choose: str
    counts_running: bool | None
    jobs: int
    mean_wait: float
    max_wait: float
    deviation: float
    zero_share: float


class Measured(NamedTuple):
    """A row, the waits of its jobs in seconds, and the mean run time of those that were done."""

    row: MurataRow
    waits: Floats
    mean_run: float


class Table3Row(NamedTuple):
    """The columns of table3.csv: a job, and the estimated seconds to its start at the queue and the reservation
    site."""

    job: int
    size: str
    site: str
    estimate_a: float
    estimate_b: float


Cases = dict[tuple[int, SiteChoice], list[Measured]]
"""The runs, by the number of sites and the way to choose one."""


class MurataResults(NamedTuple):
    """``wide``: of sites of sixteen processors; ``seconds``: what the runs of Table II took."""

    cases: Cases
    wide: dict[SiteChoice, list[Measured]]
    table3: list[Table3Row]
    seconds: float


def murata_jobs(seed: int, sites: int) -> SiteJobs:
    """Jobs for all of the simulated time, however they are sent.

    The exponent of Zipf's law is not printed; probability in proportion to 1/mean gives the published figures.
    """
    draw, means = np.random.default_rng(seed), np.array(MEANS)
    runs, kinds = np.empty(0), np.empty(0, dtype=np.int64)
    # Those that are left over when the time is up are at most as many as are there at once.
    while runs[:-POPULATION].sum() <= sites * UNTIL:
        kind = draw.choice(len(means), 2500 * sites, p=1 / means / (1 / means).sum())
        kinds = np.concatenate((kinds, kind))
        runs = np.concatenate((runs, draw.gamma((means[kind] / SIGMA) ** 2, SIGMA**2 / means[kind])))
    return SiteJobs(np.zeros(len(runs)), np.ones(len(runs), dtype=np.int64), runs, runs, kinds)


def one_run(seed: int, sites: int, choice: SiteChoice) -> Measured:
    """A run of Table II: thirty jobs at all times."""
    jobs = murata_jobs(seed, sites)
    where = [Site(f"site{number}", 1) for number in range(1, sites + 1)]
    return _measured(seed, choice, sites, jobs, placed(where, jobs, choice, population=POPULATION, until=UNTIL), UNTIL)


def one_wide_run(seed: int, choice: SiteChoice) -> Measured:
    """Jobs of the model of Lublin and Feitelson at two sites of sixteen processors, submitted when they come. They have
    no names, so their length is estimated by the mean of all that have ended."""
    made = generated(Model(jobs=WIDE_JOBS, cpus=2 * WIDE, load=WIDE_LOAD), seed)
    fits = made.cpus <= WIDE
    submit, cpus, run = made.submit[fits], made.cpus[fits], made.run[fits]
    jobs = SiteJobs(submit, cpus, run, run, np.zeros(len(run), dtype=np.int64))
    where = [Site("site1", WIDE), Site("site2", WIDE)]
    return _measured(seed, choice, 2, jobs, placed(where, jobs, choice), inf)


def table3() -> Iterator[Table3Row]:
    """Table III: eight jobs, a second apart, at a queue site and a reservation site; history knows each size."""
    sizes = list(SIZES)
    kind = np.array([sizes.index(size) for size in SUBMITTED], dtype=np.int64)
    run = np.array([SIZES[size] for size in SUBMITTED])
    jobs = SiteJobs(np.arange(len(run), dtype=np.float64), np.ones(len(run), dtype=np.int64), run, run, kind)
    where = [Site("queue", 1), Site("reservation", 1, takes_reservations=True)]
    found = placed(where, jobs, HISTORY, known=tuple(SIZES.values()))
    for job, size in enumerate(SUBMITTED):
        yield Table3Row(job + 1, size, where[found.site[job]].name, *found.estimates[job].tolist())


def _measured(seed: int, choice: SiteChoice, sites: int, jobs: SiteJobs, found: SentJobs, until: float) -> Measured:
    started = ~np.isnan(found.start)
    done = started & (found.start + jobs.run <= until)
    waits = (found.start - found.submit)[started]
    row = MurataRow(
        run=seed,
        sites=sites,
        choose=choice.choose,
        counts_running=choice.counts_running if choice.choose in ("history", "oracle") else None,
        jobs=int(done.sum()),
        mean_wait=float(waits.mean()),
        max_wait=float(waits.max()),
        deviation=float(waits.std()),
        zero_share=float((waits == 0).mean()),
    )
    return Measured(row, waits, float(jobs.run[done].mean()))
