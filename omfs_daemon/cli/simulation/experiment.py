"""``omfs experiment``: reproduce published experiments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
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


@app.command(epilog="Example: omfs experiment nickolay2021 --traces ~/traces --workers 2 --out result")
def nickolay2021(
    out: Out,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the logs of Mira and Curie lie; else OMFS_TRACES.")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="How often the real-time jobs are drawn.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Two draws, and ten logs beside the optimum.")] = False,
    workers: Workers = 1,
    slurm: Partition = None,
) -> None:
    """Real-time jobs: WCJS with four checkpoint schemes on weeks of Mira and Curie, and beside the optimum.

    One page, index.md, puts each published number beside ours. With --slurm, DIR must be visible to the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.experiments.nickolay2021.nickolay2021 import QUICK, ExperimentSize, run_nickolay2021

    size = QUICK if quick else ExperimentSize(draws=draws)
    _run_experiment(partial(run_nickolay2021, size=size), traces, out, workers, slurm)


@app.command(epilog="Example: omfs experiment murata --out result")
def murata(out: Out) -> None:
    """History: a job goes to the site that is estimated to start it first, against round robin.

    One page, index.md, puts Tables II and III of Murata et al. beside ours, and shows more than two sites.
    """
    require_simulator()
    from omfs_daemon.simulate.experiments.murata.murata import run_murata

    _run_experiment(run_murata, None, out, 1, None)


@app.command(epilog="Example: omfs experiment predictors --traces ~/traces --out result")
def predictors(
    out: Out,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the recorded traces lie; else OMFS_TRACES.")
    ] = None,
    workers: Workers = 1,
    slurm: Partition = None,
) -> None:
    """Predictions of run times from ended jobs: how accurate they are, and what EASY backfilling gains by them.

    Ten kinds of estimates on four recorded workloads, under easy and easy-sjbf, starts, and victims by limits and by
    predictions under ujfb, omfs, and realtime-replan. With --slurm, DIR must be visible to
    the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.experiments.predictors.predictors import run_predictors

    _run_experiment(run_predictors, traces, out, workers, slurm)


@app.command(epilog="Example: omfs experiment yoon2020 --generate --traces ~/traces --out result")
def yoon2020(
    out: Out,
    generate: Annotated[
        bool, typer.Option("--generate", help="A substitute for the log, which is not published: two minutes.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where logs lie, to report on them too; else OMFS_TRACES; optional."),
    ] = None,
) -> None:
    """Log analysis: which jobs fit into the hole that a job of 16,384 cores left, and the published profile.

    One page, index.md, puts Figure 8 of the paper beside what its own data give, its means beside those of generated
    jobs, and reports on four recorded logs if given.
    """
    require_simulator()
    from omfs_daemon.reports.yoon2020.yoon2020 import run_yoon2020

    _run_experiment(partial(run_yoon2020, is_generated=generate), traces, out, 1, None)


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
