"""Murata et al.: history against round robin at two sites and more, and the eight jobs of their system test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
from omfs_daemon.simulate.experiments.murata.murata_cases import (
    BIN,
    COMPARED,
    HISTORY,
    MORE_SITES,
    ROUND_ROBIN,
    Cases,
    MurataResults,
    MurataRow,
    Table3Row,
    one_run,
    one_wide_run,
    table3,
)
from omfs_daemon.simulate.experiments.murata.published import RUNS
from omfs_daemon.simulate.results.result_files import prepare, save
from omfs_daemon.simulate.results.result_rows import write_rows
from omfs_daemon.simulate.run_cases import Progress


def run_murata(setup: ExperimentSetup) -> tuple[Path, float]:
    """The whole experiment: its page, and its seconds without compiling; ConfigError if nothing can be written."""
    prepare(setup.out)
    list(table3())  # compiles
    begin = setup.clock()
    found = simulate_murata(range(RUNS), setup.clock, setup.progress)
    return write_murata(setup.out, found), setup.clock() - begin


def simulate_murata(
    seeds: Sequence[int], clock: Callable[[], float], progress: Progress | None = None
) -> MurataResults:
    """All simulations with these seeds."""
    wanted = [(2, choice) for choice in COMPARED]
    wanted += [(sites, choice) for sites in MORE_SITES for choice in COMPARED]
    cases: Cases = {}
    seconds, begin = 0.0, clock()
    for done, (sites, choice) in enumerate(wanted, start=1):
        cases[sites, choice] = [one_run(seed, sites, choice) for seed in seeds]
        if (sites, choice) in ((2, HISTORY), (2, ROUND_ROBIN)):
            seconds += clock() - begin
        begin = clock()
        if progress is not None:
            progress(done, len(wanted) + 1, f"{sites} sites, {choice.choose}")
    wide = {choice: [one_wide_run(seed, choice) for seed in seeds] for choice in COMPARED}
    return MurataResults(cases, wide, list(table3()), seconds)


def write_murata(out: Path, found: MurataResults) -> Path:
    """results.csv, processors.csv, histogram.csv, table3.csv and index.md into a directory that exists; the page."""
    from omfs_daemon.simulate.experiments.murata import murata_page

    write_rows(out / "results.csv", MurataRow, [one.row for runs in found.cases.values() for one in runs])
    write_rows(out / "processors.csv", MurataRow, [one.row for runs in found.wide.values() for one in runs])
    bins = histogram(found.cases)
    save(out / "histogram.csv", lambda file: bins.write_csv(file))
    rows = pl.DataFrame(found.table3, schema=Table3Row._fields, orient="row")
    save(out / "table3.csv", lambda file: rows.write_csv(file))
    return murata_page.write_murata_page(out, found)


def histogram(cases: Cases) -> pl.DataFrame:
    """Figure 3: jobs of an average run by their wait, which begins at ``bin`` seconds, at two sites."""
    parts = []
    for choice in (HISTORY, ROUND_ROBIN):
        runs = cases[2, choice]
        counts = np.bincount((np.concatenate([one.waits for one in runs]) // BIN).astype(np.int64))
        name, bins = [choice.choose] * len(counts), np.arange(len(counts)) * BIN
        parts.append(pl.DataFrame({"choose": name, "bin": bins, "jobs": counts / len(runs)}))
    return pl.concat(parts)
