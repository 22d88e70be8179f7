"""The tables of ``omfs whatif``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, isnan
from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from omfs_daemon.policy.rules.laws import HOUR
from omfs_daemon.simulate.comparison import Account, ComparedRow, Difference, Totals
from omfs_daemon.terminal.output import cell, clean, table

_ACCOUNTS = 20
_COLUMNS = ("before", "after", "difference")


_Text = Callable[[float, float], str]
"""Writes a value without sign, given the greatest one of its line, so that a line has one unit."""


class _Line(NamedTuple):
    """A figure's title in the tables, its field name, and its format."""

    title: str
    name: str
    text: _Text


def _with(form: str) -> _Text:
    return lambda value, _: form.format(value)


_count, _tenth, _decimal = _with("{:,.0f}"), _with("{:,.1f}"), _with("{:,.2f}")
_UNITS = (("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", HOUR, 48 * HOUR), ("d", 24 * HOUR, inf))


def _time(seconds: float, greatest: float) -> str:
    unit, size, _ = next(unit for unit in _UNITS if greatest < unit[2])
    return f"{seconds / size:,.1f} {unit}"


def _hours(hours: float, greatest: float) -> str:
    return _time(hours * HOUR, greatest * HOUR)


def _part(value: float, _: float) -> str:
    return f"{100 * value:.2f} %"


_TOTALS = (
    _Line("jobs that were done", "jobs", _count),
    _Line("refused", "rejected", _count),
    _Line("mean wait", "wait", _time),
    _Line("95 % wait at most", "wait_p95", _time),
    _Line("mean response", "response", _time),
    _Line("mean bounded slowdown", "bounded_slowdown", _decimal),
    _Line("mean wait, regular jobs", "regular_wait", _time),
    _Line("mean wait, urgent jobs", "urgent_wait", _time),
    _Line("U_L, worst slowdown of an urgent job", "u_l", _decimal),
    _Line("utilisation", "utilisation", _part),
    _Line("productive utilisation", "productive_utilisation", _part),
    _Line("preemptions", "preemptions", _count),
    _Line("CPU-hours lost", "lost_cpu_hours", _tenth),
    _Line("makespan", "makespan", _time),
)
_ALWAYS = (
    _Line("CPUs owned", "owned", _count),
    _Line("share of the machine", "share", _part),
    _Line("mean wait", "wait", _time),
    _Line("95 % wait at most", "wait_p95", _time),
    _Line("mean response", "response", _time),
)
_IF_ANY = (
    _Line("preemptions", "preemptions", _count),
    _Line("CPU-hours lost", "lost_cpu_hours", _tenth),
    _Line("below what it owns", "below_hours", _hours),
    _Line("jobs refused", "rejected", _count),
)


def comparison_tables(found: Difference, title: str, sentences: Iterable[str]) -> Iterator[RenderableType]:
    """``title``: what is compared; ``sentences``: the assumptions of the figures."""
    yield cell(title, "bold")
    made = table("", ("", *_COLUMNS), _COLUMNS)
    _fill(made, (), _TOTALS, found.before, found.after)
    yield made
    yield _accounts(found.accounts)
    yield Text("What these figures rest on:")
    for sentence in sentences:
        yield cell(f"  - {sentence}")


def _accounts(rows: tuple[ComparedRow, ...]) -> Table:
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
    """A row for each line that has a figure on either side; ``head`` appears in the first one only."""
    for line in lines:
        values = (getattr(before, line.name), getattr(after, line.name))
        known = [value for value in values if not isnan(value)]
        if not known:
            continue
        cells = ["" if isnan(value) else line.text(value, max(known)) for value in values]
        change = _change(line, *values) if len(known) == 2 else Text("")
        made.add_row(*map(cell, head), line.title, *cells, change)
        head = tuple("" for _ in head)


def _change(line: _Line, before: float, after: float) -> Text:
    """With its sign; 0 if it is below the displayed precision. The change of a percentage is in points."""
    greatest = max(before, after)
    text = line.text(abs(after - before), greatest)
    if text == line.text(0.0, greatest):
        return Text("0")
    sign = "+" if after > before else "-"
    return Text(sign + text.replace(" %", " points"), style="bold")
