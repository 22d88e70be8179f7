"""``omfs experiment``: reproduce published experiments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.terminal.output import directory_option, span
from omfs_daemon.terminal.progress_bar import progress

if TYPE_CHECKING:
    from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup

# From the setup to the page and the seconds that it took.
Run = Callable[["ExperimentSetup"], tuple[Path, float]]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Reproduce published experiments.")


Out = Annotated[
    Path, typer.Option(parser=directory_option, metavar="DIR", help="Where index.md, results.csv and the plots go.")
]
Workers = Annotated[int, typer.Option(min=1, help="Simulations to run at once on this machine.")]
Partition = Annotated[
    str | None, typer.Option(metavar="PARTITION", help="Run as a Slurm job array in this partition instead.")
]


@app.command(epilog="Example: omfs experiment agung2021 --traces ~/traces --out result")
def agung2021(
    out: Out,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the recorded traces lie; else OMFS_TRACES.")
    ] = None,
    workers: Workers = 1,
    slurm: Partition = None,
) -> None:
    """Urgent jobs first with backfilling: FCFS, UJF, conservative, EASY and UJFB on four recorded workloads.

    One page, index.md, puts each published number beside ours and says why they differ. With --slurm, DIR must be
    visible to the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.experiments.agung2021.agung2021 import run_agung2021

    _run_experiment(run_agung2021, traces, out, workers, slurm)


@app.command(epilog="Example: omfs experiment zvi2021 --out result")
def zvi2021(
    out: Out,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where SDSC-DS lies, to replay it too; else OMFS_TRACES; optional."),
    ] = None,
    workers: Workers = 1,
    slurm: Partition = None,
) -> None:
    """Memoryless fair share: OMFS against hard partition, capping, FCFS and EASY, with the quantum swept.

    One page, index.md, puts each claim of the paper beside what was measured, on generated workloads and on a recorded
    one if given. With --slurm, DIR must be visible to the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.experiments.zvi2021.zvi2021 import run_zvi2021

    _run_experiment(run_zvi2021, traces, out, workers, slurm)


def _run_experiment(run: Run, traces: Path | None, out: Path, workers: int, slurm: str | None) -> None:
    from omfs_daemon.simulate.experiments.experiment_setup import ExperimentSetup
    from omfs_daemon.simulate.run_cases import SlurmArray

    where = workers if slurm is None else SlurmArray(out / "slurm", slurm)
    with progress() as bars:
        bar = bars.add_task("compiling and loading", total=None)

        def report_progress(done: int, total: int, name: str) -> None:
            bars.update(bar, completed=done, total=total, description=name)

        setup = ExperimentSetup(traces, os.environ, out, where, report_progress, time.perf_counter)
        page, seconds = run(setup)
    print(f"{page}: done in {span(seconds)}, compiling apart")
