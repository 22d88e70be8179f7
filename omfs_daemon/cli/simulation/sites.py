"""``omfs simulate --sites``: a workload that is sent to several sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cli.typed_options import typed_names
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.output import cell, clean, print_json, show, span, table
from omfs_daemon.terminal.progress_bar import progress

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from rich.console import RenderableType

    from omfs_daemon.simulate.sites.choose_site import SiteChoice
    from omfs_daemon.simulate.sites.simulate_sites import SiteFigures, SitesOutcome
    from omfs_daemon.simulate.workload.source import Source

_PANEL = "Several sites (fcfs)"
SitesFile = Annotated[
    Path | None,
    typer.Option(
        "--sites",
        metavar="FILE.toml",
        help="Send each job to one of these sites: tables [[site]] with name, procs, kind, limit, map.",
        rich_help_panel=_PANEL,
    ),
]
ChooseSite = Annotated[
    str,
    typer.Option(
        "--choose",
        metavar="history|round-robin|shortest-queue|oracle",
        help="How a site is chosen: by the earliest start, estimated from ended jobs, or by true run times, ...",
        rich_help_panel=_PANEL,
    ),
]
CountRunning = Annotated[
    bool,
    typer.Option(
        "--count-running/--no-count-running",
        help="Whether what running jobs have left counts in an estimate; the paper's text counts queued jobs only.",
        rich_help_panel=_PANEL,
    ),
]
_GO_TOGETHER = frozenset(
    {
        *(
            "policy",
            "out",
            "trace",
            "generate",
            "procs",
            "kill",
            "processors",
            "accounts_from",
            "load",
            "bound",
            "seed",
        ),
        *("strict", "as_json", "sites", "choose", "count_running", "accounts"),
    }
)
_SITES_ONLY = ("choose", "count_running")


def require_site_options(context: typer.Context, policy: str, kill: bool, sites: Path | None) -> None:
    """ConfigError for options that do not go together."""
    typed = typed_names(context)
    if sites is None:
        if alone := [name for name in typed if name in _SITES_ONLY]:
            raise ConfigError(f"--{alone[0].replace('_', '-')}: goes with --sites")
        return
    if policy != "fcfs":
        raise ConfigError(f"--policy = {policy!r}: with --sites it must be fcfs")
    if not kill:
        raise ConfigError("--no-kill: with --sites jobs end at their limits, for which reservations are made")
    if others := [name for name in typed if name not in _GO_TOGETHER]:
        raise ConfigError(f"--{others[0].replace('_', '-')}: does not go with --sites")
    if "procs" in typed and "trace" in typed:
        raise ConfigError("--procs: with --sites only for a generated workload; the file says what sites have")


def site_choice(choose: str, count_running: bool) -> SiteChoice:
    """ConfigError for an unknown word."""
    from omfs_daemon.simulate.sites.choose_site import CHOICES, SiteChoice

    if choose not in CHOICES:
        raise ConfigError(f"--choose = {choose!r}: must be one of {', '.join(CHOICES)}")
    return SiteChoice(choose, count_running)


def run_sites(
    sites: Path,
    source: Source,
    choice: SiteChoice,
    procs: int | None,
    bound: float,
    seed: int,
    out: Path,
    as_json: bool,
) -> None:
    """Simulate, write the files, and print."""
    from omfs_daemon.simulate.results.result_files import prepare
    from omfs_daemon.simulate.sites.read_sites import read_sites
    from omfs_daemon.simulate.sites.simulate_sites import simulate_sites, site_figures, sites_summary, write_sites
    from omfs_daemon.simulate.workload.source import sourced

    places = read_sites(sites)
    prepare(out)
    processors = sum(site.processors for site in places)
    with progress() as bars:
        loading = bars.add_task("loading", total=1.0)
        found = sourced(source, procs or processors, seed, lambda part: bars.update(loading, completed=part))
        bars.remove_task(loading)
        bars.add_task(f"{len(found.workload):,} jobs to {len(places)} sites", total=None)
        outcome = simulate_sites(found.workload, places, choice)
    figures = site_figures(outcome, bound)
    notes = (*found.notes, *_conventions(outcome))
    summary = sites_summary(outcome, figures, notes)
    write_sites(out, outcome, summary)
    print_json(summary) if as_json else show(*sites_tables(outcome, figures, summary["rejected"], notes, out))


def _conventions(outcome: SitesOutcome) -> Iterator[str]:
    from omfs_daemon.simulate.sites.simulate_sites import ESTIMATING

    yield "each job goes to one site when it is submitted, and stays there; it ends at its limit"
    if outcome.choice.choose in ESTIMATING:
        counted = "counts" if outcome.choice.counts_running else "does not count, as in the paper's text"
        yield f"what running jobs have left {counted} in an estimate"
    if outcome.choice.choose == "history":
        yield "run times: the mean of the ended jobs of the same name, else of all; 0 before any has ended"
        if len(outcome.workload.job_names) == 1:
            yield "the workload names no programs: every job counts as one of the same name"


def sites_tables(
    outcome: SitesOutcome, figures: list[SiteFigures], rejected: int, notes: tuple[str, ...], out: Path
) -> Iterator[RenderableType]:
    """What ``omfs simulate --sites`` prints."""
    name = clean(outcome.workload.name)
    yield cell(f"{name} to {len(outcome.sites)} sites by {outcome.choice.choose}: {len(outcome.workload):,} jobs")
    if rejected:
        yield cell(f"{rejected:,} jobs fit no site: refused", "yellow")
    numbers = ("jobs", "mean wait", "95 %", "greatest", "deviation", "at once", "bounded slowdown", "utilisation")
    made = table("", ("site", *numbers), numbers)
    for one in figures:
        waits = (one.mean_wait, one.p95_wait, one.max_wait, one.deviation)
        made.add_row(
            cell(one.site),
            f"{one.jobs:,}",
            *("" if wait is None else span(wait) for wait in waits),
            "" if one.zero_share is None else f"{one.zero_share:.1%}",
            "" if one.mean_bounded_slowdown is None else f"{one.mean_bounded_slowdown:,.2f}",
            "" if one.utilisation is None else f"{one.utilisation:.2%}",
        )
    yield made
    yield cell("What these figures rest on:")
    for sentence in notes:
        yield cell(f"  - {sentence}")
    yield cell(f"written to {out}")
