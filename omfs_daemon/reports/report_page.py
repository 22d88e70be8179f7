"""The pages of a report: index.md, and index.html with all that it needs inside."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from omfs_daemon.reports.csv_files import printable
from omfs_daemon.reports.report_plots import ReportPlot
from omfs_daemon.simulate.results.markdown import image, markdown_table
from omfs_daemon.simulate.results.result_files import save

HOUR = 3600.0
_ROWS = 15
_NUMBER = frozenset("0123456789")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; } img { max-width: 100%; }
table { border-collapse: collapse; font-size: 14px; } th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""

_HEAPS = {
    "used": "used",
    "kept_for_large": "idle: kept for a large job",
    "does_not_fit": "idle: no waiting job fits, or it is not recorded why none started",
    "limited": "idle: held back by a limit of an account or QOS",
    "dependent": "idle: only held or dependent jobs waited",
    "nobody_waits": "idle: nobody waited",
    "down": "down, drained, or reserved",
}

Part = str | ReportPlot | tuple[Sequence[str], Sequence[Sequence[str]]]
"""A paragraph, or a heading that begins with #; a plot; a table's header and rows."""


def write_report_pages(out: Path, values: dict[str, Any], plots: Sequence[ReportPlot]) -> Path:
    """Both pages from what report.json holds; the path of index.md. ConfigError if one cannot be written."""
    parts = list(_parts(values, {plot.name: plot for plot in plots}))
    page = out / "index.md"
    text = "\n\n".join(_as_markdown(part) for part in parts) + "\n"
    save(page, lambda file: file.write(text.encode()))
    body = "\n".join(_as_html(part, out) for part in parts)
    head = f'<meta charset="utf-8"><title>Report</title><style>{_STYLE}</style>'
    whole = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'
    save(out / "index.html", lambda file: file.write(whole.encode()))
    return page


def _parts(values: dict[str, Any], plots: dict[str, ReportPlot]) -> Iterator[Part]:
    found, sources = values["summary"], values["sources"]
    waits = found["waits"]
    yield "# What the machine did"
    left_out = len(sources["malformed"]) + sum(one["records"] for one in sources["dropped"])
    yield (
        f"From {sources['file']}: {sources['records']:,} records, {left_out:,} left out. {found['cores']:,} cores, "
        f"{found['cores_source']}. Jobs of more than {found['large_above']:,} cores are large."
    )
    yield _in_a_sentence(found["shares"], found["available_core_hours"])
    yield (
        ("figure", "value", "of"),
        [
            ("jobs", f"{found['jobs']:,}", f"{found['records']:,} records"),
            ("large jobs", f"{found['large_jobs']:,}", f"{found['jobs']:,} jobs"),
            ("core hours used", _whole(found["used_core_hours"]), _whole(found["available_core_hours"])),
            ("utilization", _share(found["utilisation"]), "cores that were not down"),
            ("mean wait", _hours(waits["mean"]), f"{found['started']:,} jobs that started"),
            ("median wait", _hours(waits["median"]), f"{found['started']:,} jobs that started"),
            ("95 % waited at most", _hours(waits["p95"]), f"{found['started']:,} jobs that started"),
            ("mean wait from eligibility", _hours(waits["mean_eligible"]), _eligible(found)),
            ("mean turnaround", _hours(waits["mean_turnaround"]), f"{found['started']:,} jobs that started"),
        ],
    )
    yield "## Where the cores were"
    yield plots["idle"]
    hours = found["available_core_hours"]
    shares = [(name, found["shares"][key], found["shares"][key] * hours) for key, name in _HEAPS.items()]
    yield ("", "share", "core hours"), [(name, _share(share), _whole(part)) for name, share, part in shares]
    yield "## Month by month"
    if "months" in plots:
        yield plots["months"]
    yield (
        ("month", "jobs", "large jobs", "core hours", "utilization", "mean wait", "median wait", "mean turnaround"),
        [
            (month["month"], f"{month['jobs']:,}", f"{month['large_jobs']:,}", _whole(month["core_hours"]),
             _share(month["utilisation"]), *(_hours(month[f"{name}"]) for name in _MONTH_WAITS))
            for month in values["months"]
        ],
    )  # fmt: skip
    yield plots["week"]
    yield "## Waits"
    yield (
        ("of", "", "jobs", "mean", "median", "95 %", "longest", "mean slowdown"),
        [
            (row["group"], printable(str(row["value"])), f"{row['jobs']:,}", *(_hours(row[name]) for name in _WAITS),
             "" if row["mean_bounded_slowdown"] is None else f"{row['mean_bounded_slowdown']:,.1f}")
            for row in _first_of_each(values["waits"])
        ],
    )  # fmt: skip
    yield from _holes(values["holes"], plots)
    yield from _all_holes(values["all_holes"])
    yield "## Ends"
    yield (
        ("state", "code", "jobs and runs", "core hours", "share of core hours"),
        [
            (
                row["state"],
                printable(str(row["code"])),
                f"{row['jobs']:,}",
                _whole(row["core_hours"]),
                _share(row["share"]),
            )
            for row in values["ends"][:_ROWS]
        ],
    )
    yield from _lost(values["lost"])
    yield (
        "All tables: months.csv, waits.csv, idle.csv, profile.csv, holes.csv, hole-JOB.csv, ends.csv, lost.csv, "
        "efficiency.csv; for programs: report.json."
    )


_WAITS = ("mean", "median", "p95", "max")
_MONTH_WAITS = ("mean_wait", "median_wait", "mean_turnaround")


def _in_a_sentence(shares: dict[str, float], hours: float) -> str:
    """With the largest part of the idle ones, by which to begin."""
    name, share = max(((key, shares[key]) for key in shares if key not in ("used", "down")), key=lambda part: part[1])
    idle = 1.0 - shares["used"] - shares["down"]
    most = (
        f" The largest part of these, {_share(share)} of all: {_HEAPS[name].removeprefix('idle: ')}."
        if share > 0
        else ""
    )
    return f"Of {_whole(hours)} core hours, {_share(shares['used'])} were used and {_share(idle)} idle.{most}"


def _holes(holes: list[dict[str, Any]], plots: dict[str, ReportPlot]) -> Iterator[Part]:
    yield "## What the holes before large jobs would have held"
    if not holes:
        yield "No large job waited that long."
        return
    yield (
        "For each: the idle core hours while it waited, and the jobs that conservative backfilling would have put "
        "there so that they end before it starts; and the core hours that they would have used if they could be "
        "preempted, with the number of preemptions."
    )
    yield plots["hole"]
    yield (
        ("job", "cores", "wait", "idle core hours", "jobs that waited", "of them fit", "their core hours", "filled",
         "if preemptible", "stops"),
        [
            (printable(str(hole["job_id"])), f"{hole['cores']:,}", _hours(hole["wait"]),
             _whole(hole["idle_core_hours"]), f"{hole['waiting_jobs']:,}", f"{hole['accepted']:,}",
             _whole(hole["accepted_core_hours"]), _share(hole["filled_share"]),
             _whole(hole["preemptible_core_hours"]), f"{hole['preemptible_stops']:,}")
            for hole in holes
        ],
    )  # fmt: skip


def _all_holes(found: dict[str, Any] | None) -> Iterator[Part]:
    if found is None:
        return
    yield "## What all idle cores could have done"
    yield (
        f"{found['waiting_jobs']:,} runs waited. In hindsight, idle cores would have held "
        f"{found['jobs_that_fit_earlier']:,} of them earlier, nobody delayed: at most "
        f"{_whole(found['possible_core_hours'])} of {_whole(found['idle_core_hours'])} idle core hours. What stood in "
        f"the way ({found['settings_source']}):"
    )
    yield ("share and core hours, and what to change",), [(line,) for line in found["advice"]]


def _lost(rows: list[dict[str, Any]]) -> Iterator[Part]:
    if not rows:
        return
    yield "Of the runs that did not complete, the names of jobs and the users with most core hours:"
    yield (
        ("of", "", "runs", "core hours", "share of core hours"),
        [
            (row["group"], printable(str(row["value"])), f"{row['jobs']:,}", _whole(row["core_hours"]),
             _share(row["share"]))
            for row in rows
        ],
    )  # fmt: skip


def _first_of_each(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The values with most jobs of each group."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["group"]] = seen.get(row["group"], 0) + 1
        if seen[row["group"]] <= _ROWS:
            yield row


def _eligible(found: dict[str, Any]) -> str:
    known = found["jobs_with_eligible_time"]
    return f"{known:,} jobs say when they were eligible" if known else "no record says it: as from submission"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _hours(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / HOUR:.2f} h"


def _as_markdown(part: Part) -> str:
    if isinstance(part, ReportPlot):
        return image(_plain_markdown(part.title), part.name)
    if isinstance(part, str):
        return part
    header, rows = part
    return markdown_table(header, [[_plain_markdown(text) for text in row] for row in rows])


def _plain_markdown(text: str) -> str:
    """No table is broken, and no tag or link begins."""
    for char, harmless_char in (("|", "&#124;"), ("<", "&lt;"), ("[", "&#91;"), ("`", "&#96;")):
        text = text.replace(char, harmless_char)
    return text


def _as_html(part: Part, out: Path) -> str:
    if isinstance(part, ReportPlot):
        data = base64.b64encode((out / f"{part.name}.png").read_bytes()).decode()
        return f'<p><img alt="{escape(part.title)}" src="data:image/png;base64,{data}"></p>'
    if isinstance(part, str):
        level = len(part) - len(part.lstrip("#"))
        return f"<h{level}>{escape(part[level + 1 :])}</h{level}>" if level else f"<p>{escape(part)}</p>"
    header, rows = part
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(_html_cell(text) for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def _html_cell(text: str) -> str:
    is_number = text[:1] in _NUMBER
    return f'<td class="number">{escape(text)}</td>' if is_number else f"<td>{escape(text)}</td>"
