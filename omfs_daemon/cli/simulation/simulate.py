"""``omfs simulate``: a workload under a policy, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from omfs_daemon.cli.simulation.sites import (
    ChooseSite,
    CountRunning,
    SitesFile,
    require_site_options,
    run_sites,
    site_choice,
)
from omfs_daemon.terminal.output import directory_option, print_json, show
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson, session_of

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.simulate.options import SimulationOptions
    from omfs_daemon.simulate.workload.source import Source


def simulate(
    context: typer.Context,
    policy: Annotated[str, typer.Option(metavar="NAME", help="fcfs, easy, omfs, ...; a wrong name lists all.")],
    out: Annotated[
        Path, typer.Option(parser=directory_option, metavar="DIR", help="Where jobs.csv, summary.json and the rest go.")
    ],
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A workload: SWF, Mira's CSV, or our own CSV or Parquet; .gz too."),
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(metavar="JOBS", help="Instead of a trace: JOBS jobs of the Lublin-Feitelson model."),
    ] = None,
    procs: Annotated[int | None, typer.Option(help="CPUs of the machine; else from the trace's header.")] = None,
    nodes: Annotated[int, typer.Option(help="Number of equal nodes, each job gets whole ones; 0: count CPUs.")] = 0,
    estimates: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="What the policy takes run times to be: user (the limits), exact, predictions learned in the "
            "simulation (last2, alike2, named2, ladder, similar, gbm, murata, mean), or a CSV file (job_id,seconds).",
        ),
    ] = "user",
    estimates_for: Annotated[
        str,
        typer.Option(
            metavar="all|victims",
            help="What learned predictions are for: all that the policy decides, or only who is preempted first.",
        ),
    ] = "all",
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Whether jobs end at their limit.")] = True,
    urgent: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Urgent jobs to add: CSV with job_id,submit,procs,runtime.")
    ] = None,
    urgent_queue: Annotated[
        list[int] | None, typer.Option(metavar="N", help="A queue of the trace whose jobs are urgent; repeatable.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="never|kill|checkpoint|swap", help="How regular jobs are preempted, if not in the trace."),
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
        float | None, typer.Option(metavar="SECONDS", help="How long a job runs before it may be preempted; else 1800.")
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
    bound: Annotated[
        float, typer.Option(metavar="SECONDS", help="Run times below this count as this in the bounded slowdown.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of everything that is drawn.")] = 0,
    realtime_share: Annotated[
        float | None,
        typer.Option(metavar="R", help="Share of the jobs that are real-time, 0 to 1, drawn.", rich_help_panel=PANEL),
    ] = None,
    realtime_file: RealtimeFile = None,
    realtime_under: RealtimeUnder = None,
    layout: LayoutName = "flat",
    places: PlacesFile = None,
    scheme: Annotated[
        str, typer.Option(metavar=SCHEMES, help="How regular jobs write checkpoints.", rich_help_panel=PANEL)
    ] = "jit",
    file_system: FileSystem = "shared",
    memory_per_cpu: MemoryPerCpu = 0.0,
    act_at: ActAt = None,
    victim_max: VictimMax = None,
    weight: Weight = None,
    sites: SitesFile = None,
    choose: ChooseSite = "history",
    count_running: CountRunning = True,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with malformed lines.")] = False,
    plots: Annotated[bool, typer.Option("--plots", help="Draw plots too, as PNG and SVG.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded or generated workload under a policy, and report the results.

    Writes jobs.csv (Batsim's columns), summary.json, jobs.parquet and segments.parquet; no daemon and no Slurm
    are needed.
    """
    require_simulator()
    from omfs_daemon.simulate.options import SimulationOptions, bound_checked, estimates_named, site_rules
    from omfs_daemon.simulate.realtime_options import RealtimeOptions
    from omfs_daemon.simulate.workload.read_options import ReadOptions
    from omfs_daemon.simulate.workload.source import Source, mode_named

    require_site_options(context, policy, kill, sites)
    configured = config or session_of(context).config_path
    source = Source(
        trace=trace,
        generate=generate,
        options=ReadOptions(
            processors=processors,  # type: ignore[arg-type]  # Options checks both words
            accounts=accounts_from,  # type: ignore[arg-type]
            urgent_queues=tuple(urgent_queue) if urgent_queue else None,
            mode=mode_named(method),
            strict=strict,
            rules=site_rules(configured),
        ),
        load=load,
        accounts=accounts,
        urgent_share=urgent_share,
        urgent=urgent,
    )
    if sites is not None:
        choice = site_choice(choose, count_running)
        run_sites(sites, source, choice, procs, bound_checked(bound), seed, out, as_json)
        return
    _run(
        policy,
        source,
        SimulationOptions(
            procs=procs,
            nodes=nodes,
            estimates=estimates_named(estimates),
            estimates_for=estimates_for,
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
            realtime=RealtimeOptions(
                realtime_share=realtime_share,
                realtime=realtime_file,
                realtime_under=realtime_under,
                layout=layout,
                places=places,
                scheme=scheme,
                file_system=file_system,
                memory_per_cpu=memory_per_cpu,
                act_at=tuple(act_at or ()),
                victim_max=tuple(victim_max or ()),
                weight=tuple(weight or ()),
            ),
            strict=strict,
        ),
        out,
        plots,
        as_json,
    )


def _run(policy: str, source: Source, options: SimulationOptions, out: Path, plots: bool, as_json: bool) -> None:
    from omfs_daemon.cli.simulation import simulation_tables
    from omfs_daemon.simulate.assumptions import assumption_sentences, refused_sentences, summary_json
    from omfs_daemon.simulate.options import conventions_for, scenario_for
    from omfs_daemon.simulate.policies.policy_table import policy_named
    from omfs_daemon.simulate.results.measure import measure
    from omfs_daemon.simulate.results.prediction_figures import has_predictions, prediction_figures
    from omfs_daemon.simulate.results.result_files import prepare, write_outcome
    from omfs_daemon.simulate.workload.source import sourced

    chosen = policy_named(policy)
    chosen.require_learning(conventions_for(options))
    prepare(out)
    with progress() as bars:
        loading = bars.add_task("loading", total=1.0)
        found = sourced(source, options.procs, options.seed, lambda part: bars.update(loading, completed=part))
        bars.remove_task(loading)
        scenario, decided = scenario_for(options, found.workload, found.cpus)
        bars.add_task(f"{len(found.workload):,} jobs under {chosen.name}", total=None)
        outcome = chosen.simulate(scenario)
    measures = measure(outcome, scenario.rules.tree)
    sentences, refused = (*found.notes, *decided, *assumption_sentences(scenario, chosen)), refused_sentences(outcome)
    result = summary_json(scenario, chosen, (*sentences, *refused), measures)
    if has_predictions(outcome):
        result["estimates"] = prediction_figures(outcome, options.estimates).as_json()
    write_outcome(out, outcome, result)
    if plots:
        from omfs_daemon.simulate.results.plots import draw_outcome

        draw_outcome(out, outcome, scenario.rules.tree)
    print_json(result) if as_json else show(
        *simulation_tables.simulation_table(outcome, measures, refused, sentences, out)
    )
