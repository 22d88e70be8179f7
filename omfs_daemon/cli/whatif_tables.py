"""What ``omfs whatif`` prints for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import isnan
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from omfs_daemon.cli.output import cell, clean, span, table
from omfs_daemon.simulate.fairness import HOUR
from omfs_daemon.simulate.whatif import Account, Difference, Row, Totals

_ACCOUNTS = 20
_COLUMNS = ("before", "after", "difference")


class _Line(NamedTuple):
    """A figure's name in the tables and in the tuples, and how a value without sign is written."""

    title: str
    name: str
    text: Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _decimal(value: float) -> str:
    return f"{value:,.2f}"


def _tenth(value: float) -> str:
    return f"{value:,.1f}"


def _part(value: float) -> str:
    return f"{100 * value:.2f} %"


def _hours(value: float) -> str:
    return span(value * HOUR)


_TOTALS = (
    _Line("jobs that were done", "jobs", _count),
    _Line("refused", "rejected", _count),
    _Line("mean wait", "wait", span),
    _Line("95 % wait at most", "wait_p95", span),
    _Line("mean response", "response", span),
    _Line("mean bounded slowdown", "bounded_slowdown", _decimal),
    _Line("mean wait, regular jobs", "regular_wait", span),
    _Line("mean wait, urgent jobs", "urgent_wait", span),
    _Line("U_L, worst slowdown of an urgent job", "u_l", _decimal),
    _Line("utilisation", "utilisation", _part),
    _Line("productive utilisation", "productive_utilisation", _part),
    _Line("preemptions", "preemptions", _count),
    _Line("CPU-hours lost", "lost_cpu_hours", _tenth),
    _Line("makespan", "makespan", span),
)
_ALWAYS = (
    _Line("CPUs owned", "owned", _count),
    _Line("share of the machine", "share", _part),
    _Line("mean wait", "wait", span),
    _Line("95 % wait at most", "wait_p95", span),
    _Line("mean response", "response", span),
)
_IF_ANY = (
    _Line("preemptions", "preemptions", _count),
    _Line("CPU-hours lost", "lost_cpu_hours", _tenth),
    _Line("below what it owns", "below_hours", _hours),
    _Line("jobs refused", "rejected", _count),
)


def result(found: Difference, title: str, told: Iterable[str]) -> Iterator[RenderableType]:
    """``title``: what is compared; ``told``: what the figures rest on."""
    yield cell(title, "bold")
    made = table("", ("", *_COLUMNS), _COLUMNS)
    _fill(made, (), _TOTALS, found.before, found.after)
    yield made
    yield _accounts(found.accounts)
    yield Text("What these figures rest on:")
    for sentence in told:
        yield cell(f"  - {sentence}")


def _accounts(rows: tuple[Row, ...]) -> Table:
    shown = sorted(rows, key=lambda row: -max(row.before.jobs, row.after.jobs))[:_ACCOUNTS]
    more = f"; the {_ACCOUNTS} with the most jobs, all {len(rows)} with --json" if len(rows) > _ACCOUNTS else ""
    made = table(f"By account{more}", ("account", "", *_COLUMNS), _COLUMNS)
    for row in shown:
        some = [line for line in _IF_ANY if getattr(row.before, line.name) or getattr(row.after, line.name)]
        jobs = f"{clean(row.account)} ({max(row.before.jobs, row.after.jobs):,.0f} jobs)"
        _fill(made, (jobs,), (*_ALWAYS, *some), row.before, row.after)
        made.add_section()
    return made


def _fill(
    made: Table, head: tuple[str, ...], lines: Iterable[_Line], before: Totals | Account, after: Totals | Account
) -> None:
    """A row for each line that has a figure on either side; ``head`` stands in the first one."""
    for line in lines:
        old, new = getattr(before, line.name), getattr(after, line.name)
        if isnan(old) and isnan(new):
            continue
        values = ("" if isnan(value) else line.text(value) for value in (old, new))
        made.add_row(*map(cell, head), line.title, *values, _signed(line, new - old))
        head = tuple("" for _ in head)


def _signed(line: _Line, change: float) -> Text:
    if isnan(change):
        return Text("")
    text = line.text(abs(change))
    if text == line.text(0.0):
        return Text("0")
    return Text(("+" if change > 0 else "-") + text, style="bold")
