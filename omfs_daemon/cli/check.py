"""``omfs check``: whether this Slurm and this daemon can do what omfs-daemon promises."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from rich.table import Table

from omfs_daemon.cli.check_preemption import stops
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.client import UnreachableError
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import table
from omfs_daemon.terminal.output import when
from omfs_daemon.config.schema import Config
from omfs_daemon.config.load import check_accounts
from omfs_daemon.daemon.api.callers import user_name
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.daemon.heartbeat import age
from omfs_daemon.errors import GatewayError
from omfs_daemon.errors import OmfsError
from omfs_daemon.cluster.accounts import AccountShare
from omfs_daemon.slurm.settings_check import Facts
from omfs_daemon.slurm.settings_check import Finding
from omfs_daemon.slurm.settings_check import Level
from omfs_daemon.slurm.settings_check import PlugIn
from omfs_daemon.slurm.settings_check import findings
from omfs_daemon.slurm.gateway import Gateway
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.commands.run_command import run

_MAX_AGE = 10.0  # the default of plugins/job_submit.lua
_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def check(config: Config, gateway: Gateway, client: Client, why: str = "") -> list[Finding]:
    """All findings: the daemon, the connection to Slurm, its settings, stops, and accounts with entitlements.

    ``why`` this gateway was chosen.
    """
    try:
        settings = gateway.settings()
        nodes = gateway.nodes()
    except GatewayError as error:
        mend = "check that slurmctld runs, and slurm.conf in the configuration"
        return [daemon(client), Finding(Level.FAIL, "connection", f"Slurm does not answer: {error}", mend)]
    up = sum(node.up for node in nodes)
    how = f"{gateway.name} ({why})" if why else gateway.name
    connection = Finding(Level.OK, "connection", f"{how}: {up} of {len(nodes)} nodes are up")
    if not up:
        connection = connection._replace(level=Level.FAIL, mend="bring nodes up: sinfo -R says why they are not")
    facts = _facts(config, settings, client)
    ways = stops(config, gateway, settings, nodes, _plug_ins(settings))
    return [daemon(client), connection, *findings(settings, facts), *ways, accounts(config, gateway)]


def daemon(client: Client) -> Finding:
    """Whether omfsd runs, and whether it is in order."""
    try:
        status = client.status()
    except UnreachableError as error:
        return Finding(Level.WARN, "omfsd", f"not running: {error}", "start omfsd")
    except OmfsError as error:
        return Finding(Level.WARN, "omfsd", f"does not answer as it should: {error}", "start omfsd again")
    if status["last_error"]:
        what = f"running; last look at Slurm {when(status['last_poll'])}, then: {status['last_error']}"
        return Finding(Level.WARN, "omfsd", what, "mend what it says; it goes on by itself")
    if status["paused"]:
        return Finding(Level.WARN, "omfsd", f"paused by {status['paused']['by']}", "omfs resume")
    return Finding(Level.OK, "omfsd", f"version {status['version']} is running")


def accounts(config: Config, gateway: Gateway) -> Finding:
    """Whether slurmdbd knows the accounts that the file names."""
    try:
        rows = gateway.accounts()
        check_accounts(config, rows)
    except OmfsError as error:
        return Finding(Level.FAIL, "accounts", str(error), "sacctmgr add account, or mend the name")
    if rows is None:
        return Finding(Level.OK, "accounts", "no accounting runs: account names are taken as jobs give them")
    return Finding(Level.OK, "accounts", f"slurmdbd knows {len(rows)} accounts, all with entitlements among them")


def _facts(config: Config, settings: SlurmSettings, client: Client) -> Facts:
    heartbeat = config.daemon.heartbeat
    uid = os.geteuid()
    return Facts(
        uid=uid,
        admin_level=_admin_level(config, settings, user_name(uid)),
        plugin=plug_in(settings),
        heartbeat=heartbeat,
        heartbeat_age=age(heartbeat, time.time()),
        watched=watched(settings),
        max_age=max_age(settings),
        privileged_uids=privileged_uids(settings),
        poll_seconds=config.slurm.poll_seconds,
        running=_runs(client),
        shares=_shares(config, client),
    )


def _shares(config: Config, client: Client) -> tuple[AccountShare, ...]:
    """Those in force; without a daemon those of the file."""
    try:
        return from_rows(client.entitlements()["entitlements"])
    except OmfsError:
        return config.shares


def plug_in(settings: SlurmSettings) -> PlugIn:
    """What the job_submit.lua beside slurm.conf is."""
    script = _beside(settings, "job_submit.lua")
    try:
        return PlugIn.OURS if "omfs" in script.read_text(errors="replace") else PlugIn.ANOTHER
    except FileNotFoundError:
        return PlugIn.MISSING
    except OSError:
        return PlugIn.UNKNOWN


def watched(settings: SlurmSettings) -> Path:
    """The heartbeat that the plug-in looks at: ``heartbeat=PATH`` in its omfs_job_submit.conf, else the default one."""
    given = _plug_ins(settings).get("heartbeat")
    return Path(given) if given else Config().daemon.heartbeat


def max_age(settings: SlurmSettings) -> float:
    """Seconds after which the plug-in takes the daemon for gone."""
    try:
        return float(_plug_ins(settings)["max_age"])
    except (KeyError, ValueError):
        return _MAX_AGE


def privileged_uids(settings: SlurmSettings) -> frozenset[str]:
    """Whose releases the plug-in takes."""
    return frozenset(re.sub(r"\s", "", _plug_ins(settings).get("privileged_uids", "0")).split(","))


def _plug_ins(settings: SlurmSettings) -> dict[str, str]:
    """The plug-in's own settings, read as it reads them: the last line of a name counts."""
    try:
        text = _beside(settings, "omfs_job_submit.conf").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"(?m)^[^\S\n]*(\w+)[^\S\n]*=[^\S\n]*(.*?)[^\S\n]*$", text))


def _runs(client: Client) -> bool:
    try:
        client.status()
    except UnreachableError:
        return False
    except OmfsError:
        return True
    return True


def _beside(settings: SlurmSettings, name: str) -> Path:
    return Path(settings.values.get("SLURM_CONF", "/etc/slurm/slurm.conf")).with_name(name)


def _admin_level(config: Config, settings: SlurmSettings, user: str) -> str:
    if os.geteuid() == 0 or not settings.values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return ""
    command = ["sacctmgr", "-nP", "show", "user", user, "format=AdminLevel"]
    try:
        return run(command, timeout=config.slurm.timeout_seconds, conf=config.slurm.conf).stdout.strip()
    except GatewayError:
        return ""


def passed(found: list[Finding]) -> bool:
    """Whether nothing fails; warnings pass."""
    return all(finding.level is not Level.FAIL for finding in found)


def as_table(found: list[Finding]) -> Table:
    made = table("", ("", "subject", "what", "mend"))
    for finding in found:
        level = cell(finding.level.value, _COLOURS[finding.level])
        made.add_row(level, cell(finding.subject), cell(finding.what), cell(finding.mend))
    return made


def as_json(found: list[Finding]) -> dict[str, object]:
    """``{"ok": bool, "findings": [{level, subject, what, mend}]}``; ok: nothing fails."""
    return {
        "ok": passed(found),
        "findings": [
            {"level": level.value, "subject": subject, "what": what, "mend": mend}
            for level, subject, what, mend in found
        ],
    }
