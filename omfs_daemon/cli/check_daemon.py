"""The part of ``omfs check`` about omfsd: whether it runs, and whether the file's rules are in force."""

from __future__ import annotations

from collections.abc import Sequence

from omfs_daemon.config.entitlement_text import differences, digest, from_rows
from omfs_daemon.config.schema import Config
from omfs_daemon.daemon.api.client import Client
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
from omfs_daemon.daemon.api.status_view import RefusedReloadView, StatusView
from omfs_daemon.errors import NotRunningError, OmfsError, UnreachableError
from omfs_daemon.slurm.settings_check import Finding, Level
from omfs_daemon.terminal.output import when


def daemon_findings(client: Client) -> list[Finding]:
    """Whether it runs without errors, and has taken over the file."""
    try:
        status = client.status()
    except NotRunningError as error:
        return [Finding(Level.WARN, "omfsd", f"not running: {error}", "start omfsd")]
    except UnreachableError as error:  # whether it runs, nobody can say
        fix = "fix what is named, and check again"
        return [Finding(Level.WARN, "omfsd", f"cannot be asked from here: {error}", fix)]
    except OmfsError as error:
        return [Finding(Level.WARN, "omfsd", f"unexpected answer: {error}", "restart omfsd")]
    refused = status.get("reload_refused")
    return [_running(status), *([_refused(refused)] if refused else [])]


def _running(status: StatusView) -> Finding:
    paused = status["paused"]
    if last_error := status["last_error"]:
        what = f"running; last poll of Slurm {when(status['last_poll'])}, then: {last_error}"
        return Finding(Level.WARN, "omfsd", what, "fix the reported error; omfsd then continues by itself")
    if paused:
        return Finding(Level.WARN, "omfsd", f"paused by {paused['by']}", "omfs resume")
    return Finding(Level.OK, "omfsd", f"version {status['version']} is running")


def _refused(refused: RefusedReloadView) -> Finding:
    what = f"refused {when(refused['time'])}, nothing of the file is in force since: {refused['text']}"
    return Finding(Level.FAIL, "reload", what, "correct what is named, and reload omfsd")


def entitlements_findings(config: Config, client: Client) -> list[Finding]:
    """Whether those of the file are in force, or were changed by command while the file stayed as it was."""
    try:
        view = client.entitlements()
    except OmfsError:
        return []  # whether the daemon answers is reported already
    if conflict := view.get("conflict"):
        return [_conflict(conflict)]
    return _not_loaded(config, view) if config.model_fields_set else []  # else no file was read


def _not_loaded(config: Config, view: EntitlementsView) -> list[Finding]:
    lines = differences(from_rows(view["entitlements"]), config.all_entitlements)
    then = view.get("configuration_then")
    if not lines or then == digest(config.all_entitlements):
        return []
    if then is not None:
        return [_conflict(lines)]
    what = f"the file differs from what is in force; in force -> in the file: {'; '.join(lines)}"
    return [Finding(Level.WARN, "entitlements", what, "reload omfsd")]


def _conflict(lines: Sequence[str]) -> Finding:
    """``lines``: an account each, in force -> in the configuration."""
    what = f"the configuration was edited after a change by `omfs entitlements`: {'; '.join(lines)}"
    fix = "omfs entitlements import FILE, or write what `omfs entitlements export` prints into FILE, and reload"
    return Finding(Level.FAIL, "entitlements", what, fix)
