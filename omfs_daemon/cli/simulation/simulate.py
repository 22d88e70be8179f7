"""``omfs simulate``: a workload under a policy, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.terminal.output import directory
from omfs_daemon.terminal.output import print_json
from omfs_daemon.terminal.output import show
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import session_of

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.simulate.options import Asked
    from omfs_daemon.simulate.workload.source import Source


def simulate(
    context: typer.Context,
    policy: Annotated[str, typer.Option(metavar="NAME", help="fcfs, easy, omfs, ...; a wrong name lists all.")],
    out: Annotated[
        Path, typer.Option(parser=directory, metavar="DIR", help="Where jobs.csv, summary.json and the rest go.")
    ],
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A workload: SWF, Mira's CSV, or our own CSV or Parquet; .gz too."),
    ] = None,
    generate: Annotated[
        int | None, typer.Option(metavar="JOBS", help="Instead of a trace: so many jobs of the Lublin-Feitelson model.")
    ] = None,
    procs: Annotated[int | None, typer.Option(help="CPUs of the machine; else as the trace's header says.")] = None,
    nodes: Annotated[int, typer.Option(help="So many equal nodes, whole ones for each job; 0: CPUs are counted.")] = 0,
    estimates: Annotated[
        str, typer.Option(metavar="user|exact", help="What the policy takes run times to be: the limits, or exact.")
    ] = "user",
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Whether jobs end at their limit.")] = True,
    urgent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Urgent jobs to add: CSV with job_id,submit,procs,runtime.")
    ] = None,
    urgent_queue: Annotated[
        list[int] | None, typer.Option(metavar="N", help="A queue of the trace whose jobs are urgent; repeatable.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="never|kill|checkpoint|swap", help="How regular jobs are stopped if the trace is silent."),
    ] = "swap",
    swap_out: Annotated[
        str | None,
        typer.Option(
            metavar="LO:HI",
            help="Seconds of a swap-out, drawn, or SECONDS+bytes/RATE, as omfs methods fit prints it; "
            "else by size at 6 GB/s a CPU.",
        ),
    ] = None,
    swap_in: Annotated[str | None, typer.Option(metavar="LO:HI", help="The same of a swap-in.")] = None,
    checkpoint_out: Annotated[
        str | None,
        typer.Option(metavar="LO:HI", help="The same of a checkpoint; else by size over the file system of Mira."),
    ] = None,
    checkpoint_in: Annotated[str | None, typer.Option(metavar="LO:HI", help="The same of a restart.")] = None,
    latency: Annotated[float, typer.Option(metavar="SECONDS", help="From a decision to the first signal.")] = 0.0,
    entitlement: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PERCENT", help="What an account owns; repeatable. None: equal shares."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Entitlements, quantum and limits of a daemon's configuration.")
    ] = None,
    quantum: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a job runs before it may be stopped; else 1800.")
    ] = None,
    processors: Annotated[
        str, typer.Option(metavar="allocated|requested", help="Which number of an SWF trace counts.")
    ] = "allocated",
    accounts_from: Annotated[
        str, typer.Option(metavar="group|user|queue|none", help="What makes an account in a trace that names none.")
    ] = "group",
    load: Annotated[float, typer.Option(help="Of a generated workload: the offered load.")] = 0.8,
    accounts: Annotated[int, typer.Option(help="Of a generated workload: how many accounts.")] = 4,
    urgent_share: Annotated[float, typer.Option(help="Of a generated workload: share of urgent jobs, 0 to 1.")] = 0.0,
    bound: Annotated[float, typer.Option(metavar="SECONDS", help="Of the bounded slowdown.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with malformed lines.")] = False,
    plots: Annotated[bool, typer.Option("--plots", help="Draw plots too, as PNG and SVG.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Replay a recorded or generated workload under a policy, and say what comes of it.

    Writes jobs.csv (Batsim's columns), summary.json, jobs.parquet and segments.parquet; no daemon and no Slurm
    are needed.
    """
    require_simulator()
    from omfs_daemon.simulate.options import Asked
    from omfs_daemon.simulate.options import estimates_named
    from omfs_daemon.simulate.options import site_rules
    from omfs_daemon.simulate.workload.read_report import Options
    from omfs_daemon.simulate.workload.source import Source
    from omfs_daemon.simulate.workload.source import way_named

    configured = config or session_of(context).config_path
    _run(
        policy,
        Source(
            trace=trace,
            generate=generate,
            options=Options(
                processors=processors,  # type: ignore[arg-type]  # Options checks both words
                accounts=accounts_from,  # type: ignore[arg-type]
                urgent_queues=tuple(urgent_queue) if urgent_queue else None,
                way=way_named(method),
                strict=strict,
                rules=site_rules(configured),
            ),
            load=load,
            accounts=accounts,
            urgent_share=urgent_share,
            urgent=urgent,
        ),
        Asked(
            procs=procs,
            nodes=nodes,
            estimates=estimates_named(estimates),
            kill=kill,
            bound=bound,
            latency=latency,
            swap_out=swap_out,
            swap_in=swap_in,
            checkpoint_out=checkpoint_out,
            checkpoint_in=checkpoint_in,
            entitlement=tuple(entitlement or ()),
            config=configured,
            quantum=quantum,
            seed=seed,
        ),
        out,
        plots,
        as_json,
    )


def _run(policy: str, source: Source, asked: Asked, out: Path, plots: bool, as_json: bool) -> None:
    from omfs_daemon.cli.simulation import simulation_tables
    from omfs_daemon.simulate.results import result_files as record
    from omfs_daemon.simulate.options import setting_for
    from omfs_daemon.simulate.results.measure import measure
    from omfs_daemon.simulate.policies.policy_table import policy_named
    from omfs_daemon.simulate.workload.source import sourced
    from omfs_daemon.simulate.assumptions import refusals
    from omfs_daemon.simulate.assumptions import sentences
    from omfs_daemon.simulate.assumptions import summary

    chosen = policy_named(policy)
    record.prepare(out)
    with progress() as bars:
        loading = bars.add_task("loading", total=1.0)
        found = sourced(source, asked.procs, asked.seed, lambda part: bars.update(loading, completed=part))
        bars.remove_task(loading)
        setting, decided = setting_for(asked, found.workload, found.cpus)
        bars.add_task(f"{len(found.workload):,} jobs under {chosen.name}", total=None)
        outcome = chosen.simulate(setting)
    measures = measure(outcome, setting.rules.tree)
    told, refused = (*found.notes, *decided, *sentences(setting, chosen)), refusals(outcome)
    result = summary(setting, chosen, (*told, *refused), measures)
    record.write(out, outcome, result)
    if plots:
        from omfs_daemon.simulate.results.plots import draw

        draw(out, outcome, setting.rules.tree)
    print_json(result) if as_json else show(*simulation_tables.result(outcome, measures, refused, told, out))
