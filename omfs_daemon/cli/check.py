"""``omfs check``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from omfs_daemon.cli.check_daemon import daemon_findings, entitlements_findings
from omfs_daemon.cli.check_preemption import preemption_findings
from omfs_daemon.cli.check_realtime import check_realtime
from omfs_daemon.cli.check_site import host_findings, site_findings
from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.cluster.nodes import Node
from omfs_daemon.config.build import scope_of
from omfs_daemon.config.daemon_user import uid_of_daemon
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.config.open_gateway import open_gateway
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.errors import GatewayError, OmfsError, UnreachableError
from omfs_daemon.slurm.commands.admin_level import admin_levels
from omfs_daemon.slurm.gateway import Gateway, SlurmSettings
from omfs_daemon.slurm.scope_check import scope_findings
from omfs_daemon.slurm.settings_check import (
    Finding,
    Level,
    SiteFacts,
    connection_finding,
    findings,
    no_connection,
    passed,
)
from omfs_daemon.slurm.submit_plugin import (
    daemon_uid,
    installed_plug_in,
    max_age,
    operator_uids,
    plug_in_settings,
    privileged_uids,
    watched_heartbeat,
)
from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.terminal.output import cell, print_json, show, table
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.table import Table

_COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def check(context: typer.Context, as_json: AsJson = False) -> None:
    """Check Slurm's settings and the daemon, and suggest fixes.

    The connection, versions, permissions, and settings that make preemption slow or unsafe. Works without the
    daemon. Run it as the user that starts omfsd. Exit code 1 if anything fails.
    """
    session = session_of(context)
    config = session.config()
    with open_gateway(config.slurm) as (gateway, why):
        found = all_findings(config, gateway, session.client(), why)
    print_json(findings_as_json(found)) if as_json else show(findings_table(found))
    if not passed(found):
        raise typer.Exit(Exit.NO)


def all_findings(config: Config, gateway: Gateway, client: Client, why: str = "") -> list[Finding]:
    """Findings about the daemon, the connection to Slurm, its settings, preemption, and accounts with entitlements.

    ``why``: why this gateway was chosen.
    """
    try:
        settings = gateway.settings()
        nodes = gateway.nodes()
    except GatewayError as error:
        return [*daemon_findings(client), no_connection(error), *host_findings(config)]
    plug_in = plug_in_settings(settings)
    facts = _facts(config, settings, plug_in, nodes, client)
    return [
        *daemon_findings(client),
        connection_finding(gateway.name, why, nodes),
        *host_findings(config),
        *findings(settings, facts),
        *entitlements_findings(config, client),
        *site_findings(config, gateway, settings, facts),
        *preemption_findings(config, gateway, settings, nodes, plug_in),
        *check_realtime(config, gateway, settings, nodes),
        *_scope(config, gateway, nodes, client),
    ]


def _scope(config: Config, gateway: Gateway, nodes: Sequence[Node], client: Client) -> list[Finding]:
    """What the scope names, and what it cannot guarantee."""
    scope = scope_of(config)
    if scope.is_everything:
        return []
    try:
        partitions, rows = gateway.partitions(), gateway.accounts()
    except GatewayError:
        return []  # what Slurm does not answer is reported already
    return scope_findings(scope, partitions, nodes, rows, _entitlements(config, client))


def _facts(
    config: Config, settings: SlurmSettings, plug_in: Mapping[str, str], nodes: Sequence[Node], client: Client
) -> SiteFacts:
    heartbeat, slurm, uid = config.daemon.heartbeat, config.slurm, uid_of_daemon(config.daemon)
    levels = admin_levels(settings, slurm.timeout_seconds, slurm.conf)
    return SiteFacts(
        uid=uid,
        admin_level=levels.get(uid, ""),
        operators=frozenset(str(uid) for uid, level in levels.items() if level == "Operator"),
        plugin=installed_plug_in(settings),
        heartbeat=heartbeat,
        heartbeat_age=age(heartbeat, time.time()),
        watched=watched_heartbeat(plug_in, Config().daemon.heartbeat),
        max_age=max_age(plug_in),
        daemon_uid=daemon_uid(plug_in),
        privileged_uids=privileged_uids(plug_in),
        operator_uids=operator_uids(plug_in),
        poll_seconds=slurm.poll_seconds,
        running=_runs(client),
        entitlements=_entitlements(config, client),
        cpus=_cpus(nodes, client),
    )


def _entitlements(config: Config, client: Client) -> tuple[Entitlement, ...]:
    """Those in force; without a daemon those of the file."""
    try:
        return from_rows(client.entitlements()["entitlements"])
    except OmfsError:
        return config.all_entitlements


def _cpus(nodes: Sequence[Node], client: Client) -> int:
    """Of which entitlements are parts; without a daemon those of the nodes that are up."""
    up = sum(node.cpus for node in nodes if node.up)
    try:
        return client.entitlements().get("cpus", up)
    except OmfsError:
        return up


def _runs(client: Client) -> bool:
    try:
        client.status()
    except UnreachableError:
        return False
    except OmfsError:
        return True
    return True


def findings_table(found: Sequence[Finding]) -> Table:
    """What ``omfs check`` prints."""
    made = table("", ("", "subject", "what", "fix"))
    for finding in found:
        level = cell(finding.level.value, _COLORS[finding.level])
        made.add_row(level, cell(finding.subject), cell(finding.what), cell(finding.fix))
    return made


def findings_as_json(found: Sequence[Finding]) -> dict[str, object]:
    """``{"ok": bool, "findings": [{level, subject, what, fix}]}``; ok: nothing fails."""
    return {
        "ok": passed(found),
        "findings": [
            {"level": level.value, "subject": subject, "what": what, "fix": fix} for level, subject, what, fix in found
        ],
    }
