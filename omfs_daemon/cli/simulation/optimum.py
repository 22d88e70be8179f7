"""``omfs optimum``: the best schedule of a small log in hindsight."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cli.simulation.sim_extra import require_solver
from omfs_daemon.terminal.output import cell, directory_option, print_json, show, table
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson

if TYPE_CHECKING:
    from rich.table import Table

    from omfs_daemon.simulate.optimum.solve import Optimum


def optimum(
    trace: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Our own table, CSV or Parquet; one log for each value of a column log."),
    ],
    procs: Annotated[int, typer.Option(min=1, help="CPUs of the machine.")],
    out: Annotated[
        Path, typer.Option(parser=directory_option, metavar="DIR", help="Where schedule.csv and optimum.json go.")
    ],
    layout: Annotated[
        str, typer.Option(metavar="aligned:UNIT", help="Places: UNIT CPUs times powers of two, aligned.")
    ],
    limit: Annotated[float, typer.Option(help="Of the real-time jobs' mean slowdown.")] = 1.2,
    stops: Annotated[int, typer.Option(metavar="0|1", help="How often a batch job may be stopped.")] = 1,
    seconds: Annotated[float, typer.Option(help="For one log; then the best found, and how far off it may be.")] = 60.0,
    tick: Annotated[int, typer.Option(metavar="SECONDS", help="Times are rounded up to multiples of this.")] = 30,
    memory_per_cpu: Annotated[
        float, typer.Option(min=0, metavar="BYTES", help="What a checkpoint writes, if the table does not say.")
    ] = 16e9,
    force: Annotated[bool, typer.Option("--force", help="Also for logs of more than 12 jobs.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the solver.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Find the best schedule of a small log in hindsight: a yardstick for policies.

    Least mean slowdown of the batch jobs, with the real-time jobs' mean slowdown bounded; every submission and run
    time is known beforehand (Nickolay et al. 2021, section 5). A column class says which jobs are realtime.
    """
    require_solver()
    from omfs_daemon.simulate.optimum.instance import aligned_unit
    from omfs_daemon.simulate.optimum.optimum_files import optimum_summary, write_optimum
    from omfs_daemon.simulate.optimum.small_logs import read_small_logs
    from omfs_daemon.simulate.optimum.solve import OptimumOptions, find_optimum
    from omfs_daemon.simulate.results.result_files import prepare

    options = OptimumOptions(limit, stops, seconds, tick, seed)
    logs = read_small_logs(trace, procs, aligned_unit(layout, procs), memory_per_cpu, force)
    prepare(out)
    results = []
    with progress() as bars:
        bar = bars.add_task("solving", total=len(logs))
        for log in logs:
            results.append(find_optimum(log, options, time.monotonic))
            bars.advance(bar)
    summary = optimum_summary(results, options)
    write_optimum(out, results, summary)
    if as_json:
        print_json(summary)
    else:
        show(_optimum_table(results), *(cell(note) for note in summary["notes"]), cell(f"Results are in {out}"))


def _optimum_table(results: list[Optimum]) -> Table:
    numbers = ("batch SD", "bound", "real-time SD", "limit", "stops", "seconds")
    shown = table("", ("log", "status", *numbers), numbers)
    for found in results:
        figures = (found.batch_sd, found.bound, found.realtime_sd, found.limit)
        texts = ("" if figure is None else f"{figure:.3f}" for figure in figures)
        shown.add_row(cell(found.log.name), cell(found.status), *texts, str(found.stopped), f"{found.seconds:.1f}")
    return shown
