"""The pages of a report: index.md, and index.html with all that it needs inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omfs_daemon.cluster.durations import span
from omfs_daemon.reports.csv_files import printable
from omfs_daemon.reports.page_parts import Part, html_page, markdown_page
from omfs_daemon.reports.report_plots import ReportPlot
from omfs_daemon.simulate.results.result_files import save

_ROWS = 15
_GROUP_ROWS = 10

_HEAPS = {
    "used": "used",
    "kept_for_large": "idle: kept for a large job",
    "does_not_fit": "idle: no waiting job fits, or it is not recorded why none started",
    "limited": "idle: held back by a limit of an account or QOS",
    "dependent": "idle: only held or dependent jobs waited",
    "nobody_waits": "idle: nobody waited",
    "down": "down, drained, or reserved",
}


def write_report_pages(out: Path, values: dict[str, Any], plots: Sequence[ReportPlot], period: str) -> Path:
    """Both pages from what report.json holds; the path of index.md. ConfigError if one cannot be written."""
    title = f"What the machine did, {period}"
    parts = [f"# {title}", *_parts(values, {plot.name: plot for plot in plots})]
    page = out / "index.md"
    save(page, lambda file: file.write(markdown_page(parts).encode()))
    save(out / "index.html", lambda file: file.write(html_page(title, parts, out).encode()))
    return page


def _parts(values: dict[str, Any], plots: dict[str, ReportPlot]) -> Iterator[Part]:
    found, sources = values["summary"], values["sources"]
    waits = found["waits"]
    left_out = len(sources["malformed"]) + sum(one["records"] for one in sources["dropped"])
    name = printable(Path(sources["file"]).name)
    yield (
        f"From {name}: {sources['records']:,} records, {left_out:,} left out. {found['cores']:,} cores, "
        f"{found['cores_source']}. Jobs of more than {found['large_above']:,} cores are large."
    )
    yield _in_a_sentence(found["shares"], found["available_core_hours"])
    yield from (f"{note[0].upper()}{note[1:]}." for note in sources["notes"])
    yield (
        ("figure", "value", "of"),
        [
            ("jobs", f"{found['jobs']:,}", f"{found['records']:,} records"),
            ("large jobs", f"{found['large_jobs']:,}", f"{found['jobs']:,} jobs"),
            ("core hours used", _amount(found["used_core_hours"]), _amount(found["available_core_hours"])),
            ("utilization", _share(found["utilisation"]), "cores that were not down"),
            ("mean wait", _span(waits["mean"]), f"{found['started']:,} jobs that started"),
            ("median wait", _span(waits["median"]), f"{found['started']:,} jobs that started"),
            ("95 % waited at most", _span(waits["p95"]), f"{found['started']:,} jobs that started"),
            ("mean wait from eligibility", _span(waits["mean_eligible"]), _eligible(found)),
            ("mean turnaround", _span(waits["mean_turnaround"]), f"{found['ended']:,} jobs that ran and have ended"),
        ],
    )
    yield "## Where the cores were"
    yield plots["idle"]
    hours = found["available_core_hours"]
    shares = [
        (name, found["shares"][key], found["shares"][key] * hours)
        for key, name in _HEAPS.items()
        if found["shares"][key] > 0
    ]
    yield ("", "share", "core hours"), [(name, _share(share), _amount(part)) for name, share, part in shares]
    yield "## Month by month"
    if "months" in plots:
        yield plots["months"]
    yield (
        ("month", "jobs", "large jobs", "core hours", "utilization", "mean wait", "median wait", "mean turnaround"),
        [
            (month["month"], f"{month['jobs']:,}", f"{month['large_jobs']:,}", _amount(month["core_hours"]),
             _share(month["utilisation"]), *(_span(month[f"{name}"]) for name in _MONTH_WAITS))
            for month in values["months"]
        ],
    )  # fmt: skip
    yield plots["week"]
    yield "## Waits"
    yield (
        "From submission to start. The slowdown, of jobs that have ended, is the time from submission to end over the "
        "run time, which counts as 10 s at least."
    )
    yield (
        ("of", "", "jobs", "mean", "median", "95 %", "longest", "mean slowdown"),
        [
            (row["group"], printable(str(row["value"])), f"{row['jobs']:,}", *(_span(row[name]) for name in _WAITS),
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
                _amount(row["core_hours"]),
                _share(row["share"]),
            )
            for row in values["ends"][:_ROWS]
        ],
    )
    yield from _lost(values["lost"])
    yield "## What was asked for against what was used"
    yield (
        ("of", "", "jobs", "median of the limit used", "time-outs", "under 10 % of it", "processors used",
         "memory used", "GPU hours", "of them never used"),
        [
            (row["group"], printable(str(row["value"])), f"{row['jobs']:,}", _share(row["limit_used_median"]),
             f"{row['timeouts']:,}", f"{row['under_10_percent']:,}", _share(row["cpu_efficiency"]),
             _share(row["memory_efficiency"]), _amount(row["gpu_hours"]), _amount(row["unused_gpu_hours"]))
            for row in _first_of_each(values["efficiency"])
        ],
    )  # fmt: skip
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
    return f"Of {_amount(hours)} core hours, {_share(shares['used'])} were used and {_share(idle)} idle.{most}"


def _holes(holes: list[dict[str, Any]], plots: dict[str, ReportPlot]) -> Iterator[Part]:
    yield "## What the holes before large jobs would have held"
    if not holes:
        yield "No large job waited that long."
        return
    yield (
        "For each: the idle core hours while it waited, and the jobs that conservative backfilling would have put "
        "there so that they end before it starts, with their core hours by the lengths for which they were put there, "
        "and as they ran; and the core hours of runs that would have gone there if jobs could be preempted, with the "
        "number of preemptions. Where more cores were idle than the job asks for, something held it that accounting "
        "does not record."
    )
    yield plots["hole"]
    yield (
        ("job", "cores", "wait", "idle core hours", "jobs that waited", "of them fit", "their core hours", "filled",
         "as they ran", "if preemptible", "stops"),
        [
            (printable(str(hole["job_id"])), f"{hole['cores']:,}", _span(hole["wait"]),
             _amount(hole["idle_core_hours"]), f"{hole['waiting_jobs']:,}", f"{hole['accepted']:,}",
             _amount(hole["accepted_core_hours"]), _share(hole["filled_share"]),
             _amount(hole["real_core_hours"]), _amount(hole["preemptible_core_hours"]),
             f"{hole['preemptible_stops']:,}")
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
        f"{_amount(found['possible_core_hours'])} of {_amount(found['idle_core_hours'])} idle core hours. What stood "
        f"in the way ({found['settings_source']}):"
    )
    yield ("share and core hours, and what to change",), [(line,) for line in found["advice"]]


def _lost(rows: list[dict[str, Any]]) -> Iterator[Part]:
    if not rows:
        return
    yield "Of the runs that did not complete, the names of jobs and the users with most core hours:"
    yield (
        ("of", "", "runs", "core hours", "share of core hours"),
        [
            (row["group"], printable(str(row["value"])), f"{row['jobs']:,}", _amount(row["core_hours"]),
             _share(row["share"]))
            for row in rows
        ],
    )  # fmt: skip


def _first_of_each(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The values with most jobs of each group."""
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["group"]] = seen.get(row["group"], 0) + 1
        if seen[row["group"]] <= _GROUP_ROWS:
            yield row


def _eligible(found: dict[str, Any]) -> str:
    known = found["jobs_with_eligible_time"]
    return f"{known:,} jobs that started say from when" if known else "no record says it: as from submission"


def _amount(value: float | None) -> str:
    """Of core or GPU hours."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _span(seconds: float | None) -> str:
    return "" if seconds is None else span(seconds)
