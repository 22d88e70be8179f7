"""``omfs whatif``: what a change of the configuration would have done to a recorded period."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from omfs_daemon import __version__
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.build import rules
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.config.schema import Config
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.errors import ConfigError, GatewayError, UnreachableError
from omfs_daemon.terminal.output import print_json, show
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson, Session, session_of
from omfs_daemon.terminal.times import seconds_since_epoch

# What needs the extra, or loads slowly, is imported where it is used: the other commands must stay quick.
if TYPE_CHECKING:
    from omfs_daemon.simulate.workload.read_report import Loaded, ReadOptions


def whatif(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A configuration key to change; repeatable."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another policy than omfs: easy, capping, ...")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The period: what sacct printed (.sacct), or any trace of omfs simulate."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Instead of a trace: ask Slurm's accounting, from e.g. 30d ago or 2026-03-01.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="With --since: up to then; else up to now.")] = None,
    procs: Annotated[
        int | None, typer.Option(min=1, help="CPUs of the machine; else from the trace, else from Slurm.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a trace with malformed lines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded period with the present configuration and with a changed one; compare the accounts.

    Waits, shares, preemptions: before, after, difference. Nothing is written and nothing is changed. A period for
    --trace is saved as FILE.sacct with

    \b
    SLURM_TIME_FORMAT=%s sacct -a -X -P -n -D -S BEGIN -E END \\
    --format=JobIDRaw,JobID,Submit,Start,End,ElapsedRaw,TimelimitRaw,\\
    AllocCPUS,Account,Partition,QOS,State,Comment > FILE.sacct
    """
    require_simulator()
    from omfs_daemon.cli.simulation import whatif_tables
    from omfs_daemon.simulate.comparison import Side, compare, comparison_conventions, replayed
    from omfs_daemon.simulate.overrides import changed_lines, in_force, with_overrides
    from omfs_daemon.simulate.policies.policy_table import policy_named
    from omfs_daemon.simulate.workload.read_report import ReadOptions

    if not overrides and policy is None:
        raise ConfigError("nothing to compare: --set KEY=VALUE or --policy NAME is needed")
    session = session_of(context)
    owned = _entitlements(session)
    before = in_force(session.config(), owned.entitlements)
    after = with_overrides(before, overrides or ())
    policies = policy_named("omfs"), policy_named(policy or "omfs")
    differs = [*changed_lines(before, after)] + ([f"policy: omfs -> {policy}"] if policies[0] != policies[1] else [])
    if not differs:
        raise ConfigError("nothing to compare: --set and --policy leave everything as it is")
    period = _period(trace, since, until, before)
    with progress() as bars:
        loading = bars.add_task("loading", total=1.0)
        options = ReadOptions(strict=strict, rules=rules(before, before.all_entitlements))
        loaded = period.load(options, lambda part: bars.update(loading, completed=part))
        bars.remove_task(loading)
        machine = _machine(procs, loaded, before)
        one, other = (
            Side(replayed(loaded.workload, machine.cpus, rules(config, config.all_entitlements)), chosen)
            for config, chosen in zip((before, after), policies, strict=True)
        )
        bars.add_task(f"{len(loaded.workload):,} jobs, twice", total=None)
        found = compare(one, other)
    sentences = (
        *loaded.report.sentences(),
        period.source,
        machine.source,
        owned.source,
        *comparison_conventions(one, other, found),
    )
    if as_json:
        head = {"version": __version__, "workload": loaded.workload.name, "changes": differs}
        print_json(head | {"conventions": list(sentences)} | found.as_json())
    else:
        show(
            *whatif_tables.comparison_tables(found, f"{loaded.workload.name}: what if {'; '.join(differs)}", sentences)
        )


class _Owned(NamedTuple):
    entitlements: tuple[Entitlement, ...]
    source: str


def _entitlements(session: Session) -> _Owned:
    """The entitlements in force: from the daemon, else as it would load them at its next start."""
    try:
        view = session.client().entitlements()
        return _Owned(from_rows(view["entitlements"]), f"entitlements before: as omfsd has them now ({view['source']})")
    except UnreachableError:
        config, path = session.config(), session.config_path or DEFAULT_PATH
    try:
        store = EntitlementStore(config.daemon.state_dir, config.all_entitlements, time.time)
    except PermissionError:
        unseen = f"those changed since, in {config.daemon.state_dir}, cannot be read"
        return _Owned(config.all_entitlements, f"entitlements before: of {path}, for omfsd does not answer; {unseen}")
    source = str(path) if store.source == "configuration file" else store.source
    return _Owned(store.entitlements, f"entitlements before: of {source}, for omfsd does not answer")


_BY_CLASSES = (
    "who is urgent and how jobs are preempted: by the classes of the configuration; accounting does not say which jobs "
    "may not be requeued: all may"
)
_BY_TRACE = "who is urgent and how jobs are preempted: as the trace says; where it does not, nobody and by suspending"


class _Period(NamedTuple):
    """``load`` takes the read options and a callback for the fraction that has been read."""

    load: Callable[[ReadOptions, Callable[[float], None]], Loaded]
    source: str


def _period(trace: Path | None, since: str | None, until: str | None, config: Config) -> _Period:
    """How to read the requested period; ConfigError if that is not one period."""
    from omfs_daemon.simulate.workload import sacct
    from omfs_daemon.simulate.workload.load_trace import load_trace

    if (trace is None) == (since is None):
        raise ConfigError("either --trace FILE or --since TIME is needed, and not both")
    if trace is not None:
        if until is not None:
            raise ConfigError("--until goes with --since: a trace is replayed whole")
        by_classes = sacct.is_accounting(trace)
        return _Period(lambda *how: load_trace(trace, *how), _BY_CLASSES if by_classes else _BY_TRACE)
    now = time.time()
    begin = seconds_since_epoch(since or "", now)
    end = now if until is None else seconds_since_epoch(until, now, "--until")
    if begin >= end:
        raise ConfigError(f"--since = {since!r}: must be before {'now' if until is None else f'--until = {until!r}'}")
    return _Period(lambda options, _: sacct.ask(begin, end, config.slurm.conf, options), _BY_CLASSES)


class _Machine(NamedTuple):
    cpus: int
    source: str


def _machine(procs: int | None, loaded: Loaded, config: Config) -> _Machine:
    """Its CPUs, and their source; ConfigError if there is none."""
    if procs is not None:
        return _Machine(procs, f"CPUs of the machine: {procs:,}, as asked for")
    if loaded.facts.cpus is not None:
        return _Machine(loaded.facts.cpus, f"CPUs of the machine: {loaded.facts.cpus:,}, as the trace's header says")
    from omfs_daemon.slurm.commands.command_gateway import CommandGateway

    try:
        nodes = CommandGateway(config.slurm.conf, config.slurm.timeout_seconds).nodes()
    except GatewayError as error:
        raise ConfigError(f"--procs is needed: neither the trace nor Slurm says it ({error})") from None
    cpus = sum(node.cpus for node in nodes)
    if not cpus:
        raise ConfigError("--procs is needed: neither the trace nor Slurm says it (no nodes)")
    return _Machine(cpus, f"CPUs of the machine: {cpus:,} on {len(nodes):,} nodes, as Slurm has them now")
