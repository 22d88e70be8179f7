"""``omfs whatif``: what a change of the configuration would have done to a recorded period."""

from __future__ import annotations

import time
from typing import Annotated, NamedTuple

import typer

from omfs_daemon import __version__
from omfs_daemon.cli.simulation.replay_source import (
    Procs,
    Strict,
    Trace,
    Until,
    load_period,
    replay_machine,
    replay_period,
)
from omfs_daemon.cli.simulation.sim_extra import require_simulator
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.build import rules
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.daemon.leadership.shared_state import decided_state_dir
from omfs_daemon.daemon.store.audit_log import AuditLog
from omfs_daemon.daemon.store.entitlement_store import EntitlementStore
from omfs_daemon.errors import ConfigError, UnreachableError
from omfs_daemon.terminal.output import print_json, show
from omfs_daemon.terminal.progress_bar import progress
from omfs_daemon.terminal.session import AsJson, Session, session_of


def whatif(
    context: typer.Context,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A configuration key to change; repeatable."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another policy than omfs: easy, capping, ...")
    ] = None,
    trace: Trace = None,
    since: Annotated[
        str | None, typer.Option(help="Instead of a trace: ask Slurm's accounting, from e.g. 30d ago or 2026-03-01.")
    ] = None,
    until: Until = None,
    procs: Procs = None,
    strict: Strict = False,
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
    from omfs_daemon.simulate.workload.read_options import ReadOptions

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
    period = replay_period(trace, since, until, before)
    with progress() as bars:
        loaded = load_period(period, ReadOptions(strict=strict, rules=rules(before, before.all_entitlements)), bars)
        machine = replay_machine(procs, loaded, before)
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
        state_dir = decided_state_dir(config.daemon)
        store = EntitlementStore(state_dir, config.all_entitlements, AuditLog(state_dir, time.time))
    except OSError:
        state_dir = config.daemon.shared_directory or config.daemon.state_dir
        unseen = f"those changed since, in {state_dir}, cannot be read"
        return _Owned(config.all_entitlements, f"entitlements before: of {path}, for omfsd does not answer; {unseen}")
    source = str(path) if store.source == "configuration file" else store.source
    return _Owned(store.entitlements, f"entitlements before: of {source}, for omfsd does not answer")
