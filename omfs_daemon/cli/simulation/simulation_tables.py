"""The figures of a simulation as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from omfs_daemon.simulate.engine.outcome import Outcome
from omfs_daemon.simulate.results.measure import AccountFigures, JobFigures, Measures
from omfs_daemon.simulate.results.realtime_figures import RealtimeFigures
from omfs_daemon.terminal.output import cell, clean, span, table

_ACCOUNTS = 20


def simulation_table(
    outcome: Outcome, measures: Measures, refusals: Iterable[str], conventions: Iterable[str], out: Path
) -> Iterator[RenderableType]:
    """The output of ``omfs simulate``."""
    title = f"{clean(outcome.workload.name)} under {outcome.policy}"
    yield Text(f"{title}: {measures.jobs:,} jobs, {measures.rejected:,} refused, {measures.cut:,} ended at their limit")
    if measures.all.jobs:
        yield _jobs(measures)
        if measures.realtime is not None:
            yield _realtime(measures.realtime)
        yield Text(_machine(measures))
    if len(measures.accounts) > 1:
        yield _accounts(measures.accounts)
    yield from (Text(f"{measures.jobs:,} jobs; {sentence}") for sentence in refusals)
    yield Text("What these figures rest on:")
    for sentence in conventions:
        yield cell(f"  - {sentence}")
    yield cell(f"written to {out}")


def _jobs(measures: Measures) -> Table:
    numbers = ("mean", "median", "95 %", "greatest")
    made = table("", ("jobs", "", *numbers), numbers)
    groups = {"all": measures.all, "regular": measures.regular, "urgent": measures.urgent}
    for name, figures in groups.items():
        if figures.jobs and (name == "all" or measures.urgent.jobs):
            _rows(made, f"{name} ({figures.jobs:,})", figures)
    return made


def _rows(made: Table, name: str, figures: JobFigures) -> None:
    for label, of in (
        ("wait, s", figures.wait),
        ("response, s", figures.response),
        ("slowdown", figures.slowdown),
        ("bounded slowdown", figures.bounded_slowdown),
    ):
        made.add_row(name, label, *(_number(value) for value in (of.mean, of.median, of.p95, of.max)))
        name = ""
    made.add_section()


def _realtime(found: RealtimeFigures) -> Table:
    numbers = ("jobs", "mean", "median", "5 %", "95 %", "greatest", "mean turnaround")
    kept = "" if isnan(found.bound_kept) else f"; {found.bound_kept:.1%} of the real-time jobs kept {found.bound:g}"
    made = table(f"Bounded slowdown of real-time and other jobs{kept}", ("", *numbers), numbers)
    groups = {"real-time": found.realtime, "batch": found.batch}
    for name, both in found.categories.items():
        groups |= {f"{name}, real-time": both.realtime, f"{name}, batch": both.batch}
    for name, figures in groups.items():
        if figures.jobs:
            of, turnaround = figures.bounded_slowdown, span(figures.turnaround.mean)
            values = (_number(value) for value in (of.mean, of.median, of.p5, of.p95, of.max))
            made.add_row(name, f"{figures.jobs:,}", *values, turnaround)
    return made


def _machine(measures: Measures) -> str:
    sentences = [
        f"utilisation {measures.utilisation:.2%}, productive {measures.productive_utilisation:.2%}",
        f"makespan {measures.makespan:.0f} s ({span(measures.makespan)})",
        f"{measures.preemptions:,} preemptions of {measures.preempted_jobs:,} jobs",
        f"{measures.lost_cpu_hours:,.1f} CPU-hours lost",
    ]
    if measures.urgent.jobs:
        sentences.append(f"U_L {_number(measures.u_l)} (greatest slowdown of an urgent job)")
    return "; ".join(sentences)


def _accounts(accounts: tuple[AccountFigures, ...]) -> Table:
    greatest = sorted(accounts, key=lambda account: -account.cpu_hours)[:_ACCOUNTS]
    more = f"; {len(accounts) - _ACCOUNTS} more are in summary.json" if len(accounts) > _ACCOUNTS else ""
    numbers = (
        "CPUs owned",
        "CPU-hours held",
        "jobs",
        "mean wait",
        "preemptions",
        "below",
        "longest",
        "missing CPU-hours",
    )
    made = table(
        f"Accounts by CPU-hours; below: had demand, but held less than it owns{more}", ("account", *numbers), numbers
    )
    for account in greatest:
        fairness, wait = account.fairness, account.figures.wait.mean
        made.add_row(
            cell(account.name),
            f"{account.entitled:,.10g}",
            f"{account.cpu_hours:,.1f}",
            f"{account.figures.jobs:,}",
            "" if isnan(wait) else span(wait),
            f"{account.preemptions:,}",
            span(fairness.below_hours * 3600),
            span(fairness.longest_hours * 3600),
            f"{fairness.below_cpu_hours:,.1f}",
        )
    return made


def _number(value: float) -> str:
    """With more digits for small numbers: slowdowns of urgent jobs differ after the decimal point."""
    if isnan(value):
        return ""
    return f"{value:,.4f}" if 0 < abs(value) < 10 else f"{value:,.2f}"
