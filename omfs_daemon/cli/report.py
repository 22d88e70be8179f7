"""``omfs report``: what accounting says, and what the holes before large jobs would have held."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from omfs_daemon.cli.named_user import named_user
from omfs_daemon.cli.report_options import is_bare_hole
from omfs_daemon.cli.report_source import (
    MachineOptions,
    backfill_of,
    made_report,
    report_period,
    report_source,
)
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.output import cell, directory_option, print_json, show, table, when
from omfs_daemon.terminal.session import AsJson, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.reports.log_holes import LogHole
    from omfs_daemon.reports.log_report import LogReport
    from omfs_daemon.reports.whole_period import IdleUse

FIGURES = ("summary", "months", "waits", "idle", "holes", "ends", "efficiency")


def report(
    context: typer.Context,
    figure: Annotated[str, typer.Argument(help=f"One of {', '.join(FIGURES)}.")] = "summary",
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Accounting: Grid Engine's, saved sacct, SWF, Mira, jobs.csv.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on, e.g. 30d or 2026-03-01; without --log: ask Slurm's accounting.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to then.")] = None,
    kind: Annotated[
        str, typer.Option("--format", help="auto, sge, sge22, sacct, swf, or table; auto: by name or first line.")
    ] = "auto",
    procs: Annotated[
        int | None, typer.Option(min=1, help="Cores of the machine; else as the log or Slurm says.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of the machine, for --exclusive.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Jobs had whole nodes.")] = False,
    large: Annotated[
        str | None, typer.Option(metavar="CORES|P%", help="Jobs of more are large; default 7.8 % of the machine.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="GROUPS", help="Of account, partition, qos, user, name, array, size, length.")
    ] = None,
    lengths: Annotated[
        str, typer.Option(help="How long jobs in holes are: limit, real (what they ran), or predicted.")
    ] = "limit",
    waited: Annotated[str, typer.Option(help="Holes of jobs that waited so long, e.g. 1h.")] = "1h",
    job: Annotated[str | None, typer.Option(metavar="ID", help="The hole of this job alone.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many holes, names, or users, those of most core hours.")] = 10,
    everything: Annotated[
        bool, typer.Option("--all", help="With holes: what all idle cores of the period could have done, and advice.")
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="PARAMETERS", help="With --all: SchedulerParameters; else Slurm's, or its own values."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of times read without one and of those shown; default: local.")
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Between the fields of sge22, if not found.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a log with malformed records.")] = False,
    lenient: Annotated[bool, typer.Option("--lenient", help="Accept one with more than 5 % of them.")] = False,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of a log: idle cores, columns time and free.")
    ] = None,
    queue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --profile: columns job_id, submit, cores, length.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --profile: when the job starts that waits.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(parser=directory_option, metavar="DIR", help="Where tables, pages, and plots go.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say where idle cores came from and what would have fitted into the holes before large jobs.

    From a log or from Slurm's accounting: use, waits, and ends by month and group; which idle cores nobody asked for;
    and which jobs conservative backfilling would have started on those that were kept for a large job. Needs no daemon
    and changes nothing. A period is saved as FILE.sacct with sacct's fields as docs/reports.md lists them.
    """
    require_simulator(what="reports")
    if figure not in FIGURES:
        raise ConfigError(f"{figure!r} is no figure: must be one of {', '.join(FIGURES)}")
    if is_bare_hole(context) and profile is not None and queue is not None and start is not None:
        _bare_hole(profile, queue, start, out, as_json)
        return
    from omfs_daemon.accounting.local_times import zone_named
    from omfs_daemon.accounting.read_log import LogOptions
    from omfs_daemon.reports.backfill_settings import BackfillSettings
    from omfs_daemon.reports.job_groups import groups_named
    from omfs_daemon.simulate.results.result_files import prepare

    zone, groups = zone_named(timezone), groups_named(by)
    if out is not None:
        prepare(out)
    period = report_period(since, until)
    options = LogOptions(kind, zone, separator, strict, lenient, period.of_records(), time.time())
    backfill = backfill_of(scheduler, log is None, session_of(context).config()) if everything else BackfillSettings()
    session = session_of(context)
    source = report_source(log, options, period, session.config(), session.client(), figure == "efficiency")
    machine = MachineOptions(procs, nodes, exclusive, large)
    made = made_report(source, period, zone, machine, named_user(session.config()))
    whole: IdleUse | None = None
    if everything:
        from omfs_daemon.reports.whole_period import idle_use

        whole = idle_use(made, backfill)
    holes: list[LogHole] = []
    if figure == "holes" or out is not None or job is not None:
        from omfs_daemon.reports.log_holes import log_holes

        holes = log_holes(made, _span("--waited", waited), lengths, top, job)
    _answer(figure, made, groups, _Holes(holes, whole, job), top, out, as_json)


class _Holes(NamedTuple):
    holes: list[LogHole]
    whole: IdleUse | None
    job: str | None


def _span(option: str, text: str) -> float:
    """Seconds of ``1h``."""
    big = 1e9
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?[smhd]", text):
        return big - seconds_since_epoch(text, big, option)
    raise ConfigError(f"{option} = {text!r}: must be such as 30m, 6h, or 2d")


def _answer(
    figure: str, made: LogReport, groups: tuple[str, ...], found: _Holes, top: int, out: Path | None, as_json: bool
) -> None:
    from omfs_daemon.cli.report_tables import (
        all_holes_lines,
        figure_table,
        hole_table,
        report_summary_tables,
        sources_sentences,
    )
    from omfs_daemon.reports import end_figures, idle_figures, log_holes, month_figures, report_files, wait_figures
    from omfs_daemon.reports.hole_tables import HOLE_JOB_COLUMNS, hole_job_rows
    from omfs_daemon.reports.report_summary import report_values, sources_of, summary_of

    holes, whole, job = found
    zone = made.zone
    if out is not None:
        # Both are for this only, and load slowly.
        from omfs_daemon.reports.report_page import write_report_pages
        from omfs_daemon.reports.report_plots import draw_report, period_words

        values = report_files.write_report(out, made, groups, holes, top, whole)
        plots = draw_report(out, made, holes)
        page = write_report_pages(out, values, plots, period_words(made))
    if as_json:
        if out is None:
            values = report_files.json_value(report_values(made, groups, holes, top, whole))
        print_json(values)
        return
    for sentence in sources_sentences(report_files.json_value(sources_of(made))):
        show(cell(sentence))
    match figure:
        case "summary":
            show(*report_summary_tables(report_files.json_value(summary_of(made)), zone))
        case "months":
            show(figure_table("months", month_figures.MONTH_COLUMNS, month_figures.month_rows(made), zone))
        case "waits":
            show(figure_table("waits", wait_figures.WAIT_COLUMNS, wait_figures.wait_rows(made, groups), zone))
        case "idle":
            show(figure_table("core seconds", idle_figures.IDLE_COLUMNS, idle_figures.idle_rows(made), zone))
        case "ends":
            show(figure_table("ends", end_figures.END_COLUMNS, end_figures.end_rows(made), zone))
            title = "runs that did not complete: jobs' names and users of most core hours"
            show(figure_table(title, end_figures.LOST_COLUMNS, end_figures.lost_rows(made, top), zone))
        case "efficiency":
            columns = end_figures.EFFICIENCY_COLUMNS
            show(figure_table("asked against used", columns, end_figures.efficiency_rows(made, groups), zone))
        case _:
            title = f"holes of jobs over {made.large:,} cores, most idle core hours first"
            rows = (dict(zip(log_holes.HOLE_COLUMNS, hole.row(), strict=True)) for hole in holes)
            show(hole_table(title, rows, zone))
            if whole is not None:
                show(*(cell(line) for line in all_holes_lines(report_files.json_value(whole.values()))))
            if job is not None:
                shown = ("job_id", "submit", "cores", "length", "cores_at_submit", "first_fit", "refused_by")
                at = [HOLE_JOB_COLUMNS.index(name) for name in shown]
                behind = hole_job_rows(holes[0].filled, lambda moment: when(moment, zone) if moment < 1e18 else "")
                show(figure_table(f"behind job {job}", shown, ([row[one] for one in at] for row in behind), zone))
    if out is not None:
        show(cell(f"{page}: written, with index.html, tables, and plots"))


def _bare_hole(profile: Path, queue: Path, start: str, out: Path | None, as_json: bool) -> None:
    from omfs_daemon.reports.csv_files import csv_value, write_csv
    from omfs_daemon.reports.hole_filling import filled_hole
    from omfs_daemon.reports.hole_inputs import read_hole_inputs
    from omfs_daemon.reports.hole_tables import HOLE_JOB_COLUMNS, hole_job_rows
    from omfs_daemon.simulate.results.result_files import prepare

    if out is not None:
        prepare(out)
    inputs = read_hole_inputs(profile, queue, start)
    hole = filled_hole(inputs.profile, inputs.queue, inputs.start)
    rows = list(hole_job_rows(hole, inputs.written))
    if out is not None:
        write_csv(out / "hole.csv", HOLE_JOB_COLUMNS, rows)
    if as_json:
        print_json(
            {
                "start": inputs.written(inputs.start),
                "idle_core_hours": hole.idle_core_hours,
                "accepted": int(hole.accepted.sum()),
                "accepted_core_hours": hole.core_hours,
                "filled_share": hole.filled_share,
                "refused_by_end": hole.refused("end", "both"),
                "refused_by_cores": hole.refused("cores", "both"),
                "jobs": [dict(zip(HOLE_JOB_COLUMNS, row, strict=True)) for row in rows],
            }
        )
        return
    title = (
        f"{int(hole.accepted.sum()):,} of {len(rows):,} jobs fit before {inputs.written(inputs.start)}: "
        f"{hole.core_hours:,.0f} of {hole.idle_core_hours:,.0f} idle core hours ({hole.filled_share:.0%})"
    )
    columns = ("job_id", "submit", "cores", "length", "cores_at_submit", "first_fit", "accepted", "refused_by")
    shown = table(title, columns, numbers=("cores", "length", "cores_at_submit"))
    for row in rows:
        cells = dict(zip(HOLE_JOB_COLUMNS, row, strict=True))
        shown.add_row(*(cell(csv_value(cells[column])) for column in columns))
    show(shown)
