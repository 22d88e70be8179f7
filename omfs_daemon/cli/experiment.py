"""``omfs experiment``: published experiments, done again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from omfs_daemon.cli.extra import require_simulator
from omfs_daemon.cli.output import span
from omfs_daemon.cli.progress import progress

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Do published experiments again.")


@app.command(epilog="Example: omfs experiment agung2021 --traces ~/traces --out result")
def agung2021(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where index.md, results.csv and the plots go.")],
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the recorded traces lie; else OMFS_TRACES says.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="So many simulations at once on this machine.")] = 1,
    slurm: Annotated[
        str | None, typer.Option(metavar="PARTITION", help="Instead: an array job of Slurm in this partition.")
    ] = None,
) -> None:
    """Urgent jobs first with backfilling: FCFS, UJF, conservative, EASY and UJFB on four recorded workloads.

    One page, index.md, puts each published number beside ours and says why they differ. With --slurm, DIR must be
    seen by the nodes.
    """
    require_simulator()
    from omfs_daemon.simulate.experiments import agung2021 as experiment
    from omfs_daemon.simulate.sweep import Slurm

    where = workers if slurm is None else Slurm(out / "slurm", slurm)
    with progress() as bars:
        bar = bars.add_task("compiling and loading", total=None)

        def tell(done: int, total: int, name: str) -> None:
            bars.update(bar, completed=done, total=total, description=name)

        page, seconds = experiment.run(traces, os.environ, out, where, tell, time.perf_counter)
    print(f"{page}: done in {span(seconds)}, compiling apart")
