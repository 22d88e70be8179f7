"""The page: what Murata et al. print beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from omfs_daemon.simulate.experiments.murata.murata_cases import (
    COMPARED,
    HISTORY,
    HISTORY_TEXT,
    MORE_SITES,
    ROUND_ROBIN,
    WIDE,
    WIDE_LOAD,
    Measured,
    MurataResults,
    Table3Row,
)
from omfs_daemon.simulate.experiments.murata.published import (
    MEANS,
    POPULATION,
    PRINTED_SITES,
    PUBLISHED,
    UNTIL,
    Summary,
)
from omfs_daemon.simulate.results.markdown import bullets, markdown_table
from omfs_daemon.simulate.results.result_files import save
from omfs_daemon.simulate.sites.choose_site import SiteChoice

_HEADER = ("", "jobs done", "mean wait, s", "deviation of waits, s", "mean of maxima, s", "largest, s", "no wait, %")


def mean_summary(runs: Sequence[Measured]) -> Summary:
    """Mean of each figure over the runs; of the maximum, the largest."""
    mean = {
        name: float(np.mean([getattr(one.row, name) for one in runs])) for name in ("jobs", "mean_wait", "deviation")
    }
    return Summary(max_wait=max(one.row.max_wait for one in runs), **mean)


def write_murata_page(out: Path, found: MurataResults) -> Path:
    """index.md; its path. ConfigError if it cannot be written."""
    page = out / "index.md"
    save(page, lambda file: file.write(("\n\n".join(_page(found)) + "\n").encode()))
    return page


def _page(found: MurataResults) -> Iterator[str]:
    runs = len(found.cases[2, HISTORY])
    yield "# History and round robin: Murata et al."
    yield (
        "Y. Murata, R. Egawa, M. Higashida, H. Kobayashi, *A History-Based Job Scheduling Mechanism for the Vector "
        f"Computing Cloud*. {POPULATION} jobs are at the sites at all times, for {UNTIL:,.0f} s; a site serves one job "
        f"at a time, first come, first served; mean of {runs} runs."
    )
    yield "## Table II: two sites"
    yield markdown_table(_HEADER, _table2(found))
    yield bullets(
        (
            "history: a job goes to the site with the earliest estimated start, by the mean run time of ended jobs of "
            "the same command, else of all, else 0. *Without what runs*: the rest of the running job does not count, "
            "which is what the paper's text says",
            f"ten kinds of jobs, means {MEANS[0]:g} to {MEANS[-1]:,g} s; their probabilities are not printed (Zipf's "
            "law): here in proportion to 1/mean, which gives the published figures without fitting",
            "the published maximum may be the mean or the largest of the runs",
            f"the {2 * runs} runs of history and round robin took {found.seconds:.1f} s, their jobs included",
            f"history does {_ratio(found):.3f} times the jobs of round robin; published: "
            f"{PUBLISHED['history'].jobs / PUBLISHED['round-robin'].jobs:.3f}",
        )
    )
    yield "### Little's law"
    yield "Where so many jobs are there at all times, time times jobs there over jobs done is mean wait plus mean run."
    yield markdown_table(("", "time x jobs there / jobs done, s", "mean wait + mean run, s"), _little(found))
    yield "## More sites"
    yield markdown_table(("sites", *_HEADER[1:]), _more(found))
    yield f"## Two sites of {WIDE} processors"
    yield (
        f"Jobs of the model of Lublin and Feitelson (2003) at an offered load of {WIDE_LOAD:g}, submitted when they "
        "come. The sum becomes a list schedule. These jobs have no names, so the mean of all jobs estimates each."
    )
    yield markdown_table(_HEADER, [_row(_title(choice), one) for choice, one in found.wide.items()])
    yield "## Table III: eight jobs at a queue site and a reservation site"
    yield markdown_table(
        ("job", "size", "site", "site in the paper", "estimate at the queue site, s", "at the reservation site, s"),
        [_job(row, printed) for row, printed in zip(found.table3, PRINTED_SITES, strict=True)],
    )
    yield (
        "Submissions are a second apart, and history knows each size. The paper shows job 3 at one site and jobs 4 to "
        "7 at the other, and is silent on the others."
    )


def _table2(found: MurataResults) -> Iterator[Sequence[str]]:
    for choice in COMPARED:
        if (published := PUBLISHED.get(choice.choose)) is not None and choice != HISTORY_TEXT:
            jobs, mean, largest, deviation = (f"{figure:,.0f}" for figure in published)
            yield f"{choice.choose}, published", jobs, mean, deviation, largest, "", ""
        yield _row(_title(choice), found.cases[2, choice])


def _title(choice: SiteChoice) -> str:
    return choice.choose if choice.counts_running else f"{choice.choose}, without what runs"


def _row(title: str, runs: Sequence[Measured]) -> Sequence[str]:
    found = mean_summary(runs)
    zero = 100 * np.mean([one.row.zero_share for one in runs])
    maxima = np.mean([one.row.max_wait for one in runs])
    figures = (found.jobs, found.mean_wait, found.deviation, maxima, found.max_wait)
    return title, *(f"{figure:,.0f}" for figure in figures), f"{zero:.2f}"


def _ratio(found: MurataResults) -> float:
    return mean_summary(found.cases[2, HISTORY]).jobs / mean_summary(found.cases[2, ROUND_ROBIN]).jobs


def _little(found: MurataResults) -> Iterator[Sequence[str]]:
    kinds = np.array(MEANS)
    run = len(kinds) / (1 / kinds).sum()
    for name, figures in PUBLISHED.items():
        yield f"{name}, published", f"{POPULATION * UNTIL / figures.jobs:,.0f}", f"{figures.mean_wait + run:,.0f}"
    for choice in (HISTORY, HISTORY_TEXT, ROUND_ROBIN):
        runs = found.cases[2, choice]
        both = mean_summary(runs).mean_wait + np.mean([one.mean_run for one in runs])
        yield _title(choice), f"{POPULATION * UNTIL / mean_summary(runs).jobs:,.0f}", f"{both:,.0f}"


def _more(found: MurataResults) -> Iterator[Sequence[str]]:
    for sites in MORE_SITES:
        for choice in COMPARED:
            yield _row(f"{sites}, {_title(choice)}", found.cases[sites, choice])


def _job(row: Table3Row, printed: str) -> Sequence[str]:
    return str(row.job), row.size, row.site, printed, f"{row.estimate_a:g}", f"{row.estimate_b:g}"
