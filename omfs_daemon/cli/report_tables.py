"""Tables of ``omfs report`` for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from omfs_daemon.reports.csv_files import Value, csv_value
from omfs_daemon.terminal.output import cell, span, table, when

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_SECONDS = frozenset(
    {"mean", "median", "p95", "max", "wait", "length"}
    | {"mean_eligible", "mean_run", "mean_turnaround", "mean_wait", "median_wait", "p95_wait", "mean_eligible_wait"}
)
_TIMES = frozenset({"begin", "end", "submit", "eligible", "start", "first_fit"})
_SHARES = frozenset(
    {"share", "utilisation", "filled_share", "limit_used_median", "cpu_efficiency", "memory_efficiency"}
)
_TEXTS = frozenset({"group", "value", "month", "job_id", "state", "code", "refused_by"})
_HOLE_NAMES = {
    "job_id": "job",
    "cores": "cores",
    "start": "start",
    "wait": "wait",
    "idle_core_hours": "idle core hours",
    "waiting_jobs": "jobs behind",
    "accepted": "of them fit",
    "accepted_core_hours": "their core hours",
    "filled_share": "filled",
    "real_core_hours": "as they ran",
    "preemptible_core_hours": "if preemptible",
    "preemptible_stops": "stops",
}
_HEAP_NAMES = {
    "used": "used",
    "nobody_waits": "idle: nobody waited",
    "does_not_fit": "idle: no waiting job fits, or not known why",
    "kept_for_large": "idle: kept for a large job",
    "limited": "idle: held back by limits",
    "dependent": "idle: only held or dependent jobs",
    "down": "down or reserved",
}


def figure_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Value]], zone: tzinfo | None, most: int = 40
) -> Table:
    """The first ``most`` rows, with a sentence on the others; ``zone``: of times, as in all tables here."""
    every = list(rows)
    more = f"; the first {most} of {len(every):,}" if len(every) > most else ""
    made = table(title + more, columns, numbers=[name for name in columns if name not in _TEXTS])
    for row in every[:most]:
        made.add_row(*(cell(_text(name, value, zone)) for name, value in zip(columns, row, strict=True)))
    return made


def hole_table(title: str, holes: Iterable[dict[str, Value]], zone: tzinfo | None) -> Table:
    """What a screen holds of each hole; ``--out`` and ``--json`` have all of it."""
    made = table(title, list(_HOLE_NAMES.values()), numbers=list(_HOLE_NAMES.values())[1:])
    for hole in holes:
        made.add_row(*(cell(_text(name, hole[name], zone)) for name in _HOLE_NAMES))
    return made


def _text(name: str, value: Value, zone: tzinfo | None) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return csv_value(value)
    if value != value:
        return ""
    if name in _SECONDS:
        return span(float(value))
    if name in _TIMES:
        return when(float(value), zone)[:16]
    if name in _SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:,.1f}"


def report_summary_tables(found: dict[str, Any], zone: tzinfo | None) -> Iterator[RenderableType]:
    """A screen: what the machine did, where idle cores came from, how jobs waited and ended."""
    period = f"{when(found['begin'], zone)} to {when(found['end'], zone)}"
    first = table(period, ("figure", "value", "of"), numbers=("value",))
    waits, started = found["waits"], f"{found['started']:,} jobs that started"
    for name, value, of in (
        ("jobs", f"{found['jobs']:,}", f"{found['records']:,} records"),
        (f"large jobs (over {found['large_above']:,} cores)", f"{found['large_jobs']:,}", f"{found['jobs']:,} jobs"),
        ("cores", f"{found['cores']:,}", found["cores_source"]),
        ("core hours used", f"{found['used_core_hours']:,.0f}", f"{found['available_core_hours']:,.0f}"),
        ("utilization", _share(found["utilisation"]), "cores that were not down"),
        *_by_sreport(found["sreport"], zone),
        ("mean wait", _seconds(waits["mean"]), started),
        ("median wait", _seconds(waits["median"]), started),
        ("95 % wait at most", _seconds(waits["p95"]), started),
        ("mean wait from eligibility", _seconds(waits["mean_eligible"]), _eligible(found)),
        ("mean turnaround", _seconds(waits["mean_turnaround"]), f"{found['ended']:,} jobs that ran and have ended"),
    ):
        first.add_row(cell(name), cell(value), cell(of))
    yield first
    shares = table("where the cores were", ("", "share", "core hours"), numbers=("share", "core hours"))
    for name, share in found["shares"].items():
        hours = share * found["available_core_hours"]
        shares.add_row(cell(_HEAP_NAMES[name]), cell(_share(share)), cell(f"{hours:,.0f}"))
    yield shares
    ends = ", ".join(f"{state} {count:,}" for state, count in found["ends"].items())
    yield cell(f"ends of runs: {ends or 'none in the period'}")


def sources_sentences(sources: dict[str, Any]) -> Iterator[str]:
    """What was read and left out, in one line each."""
    yield f"{sources['file']}: {sources['records']:,} records"
    for one in sources["dropped"]:
        yield f"left out: {one['records']:,} with {one['reason']}"
    if sources["malformed"]:
        first = ", ".join(f"{one['place']} ({one['why']})" for one in sources["malformed"][:3])
        yield f"left out: {len(sources['malformed']):,} malformed: {first}"
    yield from sources["notes"]
    for one in sources["disagreements"]:
        yield f"{one['column']}: {one['records']:,} differ from their dates: {'; '.join(one['first'])}"


def all_holes_lines(found: dict[str, Any]) -> Iterator[str]:
    """What all idle cores could have done, and what stood in the way."""
    yield (
        f"In hindsight, idle cores would have held {found['jobs_that_fit_earlier']:,} of {found['waiting_jobs']:,} "
        f"waiting runs earlier, nobody delayed: at most {found['possible_core_hours']:,.0f} of "
        f"{found['idle_core_hours']:,.0f} idle core hours ({found['settings_source']})."
    )
    yield from found["advice"]


def _by_sreport(found: dict[str, Any] | None, zone: tzinfo | None) -> Iterator[tuple[str, str, str]]:
    if found is not None:
        hours = " to ".join(when(found[edge], zone)[:16] for edge in ("begin", "end"))
        of = f"{hours}, by these records {_share(found['ours'])}"
        yield "utilization by sreport", _share(found["utilisation"]), of


def _eligible(found: dict[str, Any]) -> str:
    known = found["jobs_with_eligible_time"]
    return f"{known:,} jobs that started say from when" if known else "no record says it: as from submission"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _seconds(value: float | None) -> str:
    return "" if value is None else span(value)
