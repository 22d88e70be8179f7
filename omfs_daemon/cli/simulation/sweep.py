"""``omfs sweep``: a workload under several policies and settings, crossed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from omfs_daemon.cli.simulation.experiment import Partition
from omfs_daemon.cli.simulation.experiment import Workers
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import directory
from omfs_daemon.terminal.output import print_json
from omfs_daemon.terminal.output import show
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import session_of

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.simulate.run_cases import Slurm
    from omfs_daemon.simulate.parameter_sweep import Combination

# As many as `omfs simulate` gives a generated workload if it is not told.
_ACCOUNTS = 4


def sweep(
    context: typer.Context,
    policy: Annotated[
        list[str], typer.Option(metavar="NAME", help="fcfs, omfs, ...; repeatable; a wrong name lists all.")
    ],
    out: Annotated[Path, typer.Option(parser=directory, metavar="DIR", help="Where results.csv goes.")],
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A workload, as of `omfs simulate`; it is read once.")
    ] = None,
    generate: Annotated[
        int | None, typer.Option(metavar="JOBS", help="Instead of a trace: so many jobs of the Lublin-Feitelson model.")
    ] = None,
    quantum: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", help="How long a job runs before it may be stopped; else 1800; repeatable."),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Of all that is drawn; else 0; repeatable.")
    ] = None,
    procs: Annotated[
        list[int] | None, typer.Option(metavar="N", help="CPUs; else as the trace's header says; repeatable.")
    ] = None,
    estimates: Annotated[
        list[str] | None,
        typer.Option(metavar="user|exact", help="What the policy takes run times to be; else user; repeatable."),
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
        typer.Option(metavar="never|kill|checkpoint|swap", help="How regular jobs are stopped if the trace is silent."),
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
    workers: Workers = 1,
    slurm: Partition = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Simulate every combination of the options that are repeated, and put the figures in one table.

    DIR/results.csv has one row a combination: the columns of an experiment, then the parameters. A policy that stops
    nobody is not repeated for each quantum and latency. With --slurm, DIR must be seen by the nodes.
    """
    require_simulator(with_slurm=slurm is not None)
    from omfs_daemon.simulate.options import Asked
    from omfs_daemon.simulate.options import estimates_named
    from omfs_daemon.simulate.options import site_rules
    from omfs_daemon.simulate.workload.read_report import Options
    from omfs_daemon.simulate.workload.source import Source
    from omfs_daemon.simulate.workload.source import way_named
    from omfs_daemon.simulate.run_cases import Slurm
    from omfs_daemon.simulate.parameter_sweep import Axes
    from omfs_daemon.simulate.parameter_sweep import combinations

    configured = config or session_of(context).config_path
    axes = Axes(
        policy=tuple(policy),
        procs=tuple(procs or (None,)),
        estimates=tuple(estimates_named(name) for name in estimates or ("user",)),
        quantum=tuple(quantum or (None,)),
        latency=tuple(latency or (0.0,)),
        seed=tuple(seed or (0,)),
        load=tuple(load or ()),
    )
    asked = Asked(swap_out=swap_out, swap_in=swap_in, entitlement=tuple(entitlement or ()), config=configured)
    options = Options(way=way_named(method), rules=site_rules(configured))
    source = Source(trace=trace, generate=generate, options=options, accounts=_ACCOUNTS, urgent=urgent)
    where = workers if slurm is None else Slurm(out / "slurm", slurm)
    _run(combinations(axes, asked, source), out, where, as_json)


def _run(every: Sequence[Combination], out: Path, where: int | Slurm, as_json: bool) -> None:
    from omfs_daemon.simulate import parameter_sweep as sweeping
    from omfs_daemon.simulate.results.result_files import prepare
    from omfs_daemon.simulate.results.result_files import save
    from omfs_daemon.simulate.run_cases import run_all

    prepare(out)
    with progress() as bars:
        bar = bars.add_task("loading", total=1.0)
        plans = sweeping.planned(every, lambda part: bars.update(bar, completed=part))
        bars.update(bar, completed=0, total=len(plans), description=f"{len(plans):,} simulations")

        def tell(done: int, total: int, name: str) -> None:
            bars.update(bar, completed=done, description=name)

        results = run_all([plan.case for plan in plans], sweeping.result, where, tell)
    made, told = sweeping.table(plans, results), sweeping.conventions(plans, results)
    save(out / "results.csv", lambda file: made.write_csv(file))
    rows = made.to_dicts()
    print_json({"results": rows, "conventions": list(told)}) if as_json else show(*_told(rows, told, out))


def _told(rows: Sequence[dict[str, Any]], conventions: Sequence[str], out: Path) -> Iterator[RenderableType]:
    """A table of what differs and of all figures; beneath it what is the same in all rows."""
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
