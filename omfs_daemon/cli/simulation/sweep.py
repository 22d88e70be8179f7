"""``omfs sweep``: a workload under several policies and options, crossed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from omfs_daemon.cli.simulation.experiment import Partition, Workers
from omfs_daemon.cli.simulation.realtime_arguments import (
    PANEL,
    SCHEMES,
    ActAt,
    FileSystem,
    LayoutName,
    MemoryPerCpu,
    PlacesFile,
    RealtimeFile,
    RealtimeUnder,
    VictimMax,
    Weight,
)
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.terminal.output import cell, directory_option, print_json, show, table
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson, session_of

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.simulate.parameter_sweep import Combination
    from omfs_daemon.simulate.run_cases import SlurmArray

# The default of `omfs simulate` for a generated workload.
_ACCOUNTS = 4


def sweep(
    context: typer.Context,
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="fcfs, omfs, ...; repeatable; a wrong name lists all.")
    ],
    out: Annotated[Path, typer.Option(parser=directory_option, metavar="DIR", help="Where results.csv goes.")],
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A workload, as of `omfs simulate`; it is read once.")
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(metavar="JOBS", help="Instead of a trace: JOBS jobs of the Lublin-Feitelson model."),
    ] = None,
    quantum: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="How long a job runs before it may be preempted; else 1800; repeatable."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Of all that is drawn; else 0; repeatable.")
    ] = None,
    procs: Annotated[
        list[int] | None, typer.Option(metavar="N", help="CPUs; else from the trace's header; repeatable.")
    ] = None,
    estimates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="What the policy takes run times to be (omfs simulate --help); else user; repeatable.",
        ),
    ] = None,
    load: Annotated[
        list[float] | None, typer.Option(metavar="X", help="Of a generated workload; else 0.8; repeatable.")
    ] = None,
    latency: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="From a decision to the first signal; else 0; repeatable."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="never|kill|checkpoint|swap", help="How regular jobs are preempted, if not in the trace."),
    ] = "swap",
    entitlement: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PERCENT", help="What an account owns, in all; one for each. None: equal shares."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Entitlements, quantum and limits of a daemon's configuration.")
    ] = None,
    urgent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Urgent jobs to add: CSV with job_id,submit,procs,runtime.")
    ] = None,
    swap_out: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Seconds of a swap-out, drawn; else by size at 6 GB/s a CPU.")
    ] = None,
    swap_in: Annotated[str | None, typer.Option(metavar="LO:HI", help="The same of a swap-in.")] = None,
    realtime_share: Annotated[
        list[float] | None,
        typer.Option(
            metavar="R", help="Share of the jobs that are real-time, 0 to 1, drawn; repeatable.", rich_help_panel=PANEL
        ),
    ] = None,
    realtime_file: RealtimeFile = None,
    realtime_under: RealtimeUnder = None,
    layout: LayoutName = "flat",
    places: PlacesFile = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar=SCHEMES, help="How regular jobs write checkpoints; else jit; repeatable.", rich_help_panel=PANEL
        ),
    ] = None,
    file_system: FileSystem = "shared",
    memory_per_cpu: MemoryPerCpu = 0.0,
    act_at: ActAt = None,
    victim_max: VictimMax = None,
    weight: Weight = None,
    workers: Workers = 1,
    slurm: Partition = None,
    as_json: AsJson = False,
) -> None:
    """Simulate every combination of the options that are repeated, and put the figures in one table.

    DIR/results.csv has one row per combination: the columns of an experiment, then the parameters. A policy without
    preemption is not repeated for each quantum and latency. With --slurm, DIR must be visible to the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.options import SimulationOptions, estimates_named, site_rules
    from omfs_daemon.simulate.parameter_sweep import Axes, combinations
    from omfs_daemon.simulate.realtime_options import RealtimeOptions
    from omfs_daemon.simulate.run_cases import SlurmArray
    from omfs_daemon.simulate.workload.read_options import ReadOptions
    from omfs_daemon.simulate.workload.source import Source, mode_named

    configured = config or session_of(context).config_path
    axes = Axes(
        policy=tuple(policy),
        procs=tuple(procs or (None,)),
        estimates=tuple(estimates_named(name) for name in estimates or ("user",)),
        quantum=tuple(quantum or (None,)),
        latency=tuple(latency or (0.0,)),
        seed=tuple(seed or (0,)),
        load=tuple(load or ()),
        realtime_share=tuple(realtime_share or (None,)),
        scheme=tuple(scheme or ("jit",)),
    )
    simulation_options = SimulationOptions(
        swap_out=swap_out,
        swap_in=swap_in,
        entitlement=tuple(entitlement or ()),
        config=configured,
        realtime=RealtimeOptions(
            realtime=realtime_file,
            realtime_under=realtime_under,
            layout=layout,
            places=places,
            file_system=file_system,
            memory_per_cpu=memory_per_cpu,
            act_at=tuple(act_at or ()),
            victim_max=tuple(victim_max or ()),
            weight=tuple(weight or ()),
        ),
    )
    options = ReadOptions(mode=mode_named(method), rules=site_rules(configured))
    source = Source(trace=trace, generate=generate, options=options, accounts=_ACCOUNTS, urgent=urgent)
    where = workers if slurm is None else SlurmArray(out / "slurm", slurm)
    _run(combinations(axes, simulation_options, source), out, where, as_json)


def _run(every: Sequence[Combination], out: Path, where: int | SlurmArray, as_json: bool) -> None:
    from omfs_daemon.simulate import parameter_sweep
    from omfs_daemon.simulate.results.result_files import prepare, save
    from omfs_daemon.simulate.run_cases import run_all

    prepare(out)
    with progress() as bars:
        bar = bars.add_task("loading", total=1.0)
        plans = parameter_sweep.planned(every, lambda part: bars.update(bar, completed=part))
        bars.update(bar, completed=0, total=len(plans), description=f"{len(plans):,} simulations")

        def report_progress(done: int, total: int, name: str) -> None:
            bars.update(bar, completed=done, description=name)

        results = run_all([plan.case for plan in plans], parameter_sweep.sweep_result, where, report_progress)
    made, sentences = parameter_sweep.sweep_table(plans, results), parameter_sweep.sweep_conventions(plans, results)
    save(out / "results.csv", lambda file: made.write_csv(file))
    rows = made.to_dicts()
    print_json({"results": rows, "conventions": list(sentences)}) if as_json else show(
        *_sweep_tables(rows, sentences, out)
    )


def _sweep_tables(rows: Sequence[dict[str, Any]], conventions: Sequence[str], out: Path) -> Iterator[RenderableType]:
    """A table of the parameters that differ and of all figures; below it what is the same in all rows."""
    from omfs_daemon.simulate.parameter_sweep import PARAMETERS

    given = ("workload", "jobs", "urgent_jobs", *PARAMETERS)
    same = {name: kept.pop() for name in given if len(kept := {row[name] for row in rows} - {None}) == 1}
    names = [name for name in rows[0] if name not in same and any(row[name] is not None for row in rows)]
    # Parameters beside the policy, figures after them.
    names.sort(key=lambda name: 0 if name in (*given, "policy") else 1)
    headings = {name: name.replace("_", " ") for name in names}
    made = table("", tuple(headings.values()), [headings[name] for name in names if name not in ("workload", "policy")])
    for row in rows:
        made.add_row(*(cell(_number(row[name])) for name in names))
    yield made
    alike = ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in same.items())
    if alike:
        yield cell(f"The same in all rows: {alike}")
    yield Text("What these figures rest on:")
    for sentence in conventions:
        yield cell(f"  - {sentence}")
    yield cell(f"written to {out / 'results.csv'}")


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"
    return "" if value is None else str(value)
