"""The submit plug-in beside slurm.conf: which job_submit.lua is installed, and its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from omfs_daemon.slurm.gateway import SlurmSettings

SETTINGS_FILE = "omfs_job_submit.conf"

_MAX_AGE = 10.0  # the default of plugins/job_submit.lua


class PlugIn(StrEnum):
    """The job_submit.lua beside slurm.conf."""

    OURS = "ours"
    ANOTHER = "another"
    MISSING = "missing"
    UNKNOWN = "unknown"


def installed_plug_in(settings: SlurmSettings) -> PlugIn:
    """Which job_submit.lua lies beside slurm.conf."""
    script = _beside(settings, "job_submit.lua")
    try:
        return PlugIn.OURS if "omfs" in script.read_text(errors="replace") else PlugIn.ANOTHER
    except FileNotFoundError:
        return PlugIn.MISSING
    except OSError:
        return PlugIn.UNKNOWN


def plug_in_settings(settings: SlurmSettings) -> dict[str, str]:
    """The settings in SETTINGS_FILE, read as the plug-in reads them: the last line of a name counts."""
    try:
        text = _beside(settings, SETTINGS_FILE).read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"(?m)^[^\S\n]*(\w+)[^\S\n]*=[^\S\n]*(.*?)[^\S\n]*$", text))


def watched_heartbeat(plug_in: Mapping[str, str], default: Path) -> Path:
    """The heartbeat file that the plug-in with these settings watches."""
    given = plug_in.get("heartbeat")
    return Path(given) if given else default


def max_age(plug_in: Mapping[str, str]) -> float:
    """Age of the heartbeat in seconds after which the plug-in considers the daemon gone."""
    try:
        return float(plug_in["max_age"])
    except (KeyError, ValueError):
        return _MAX_AGE


def daemon_uid(plug_in: Mapping[str, str]) -> str:
    """The uid that the plug-in takes for omfsd's."""
    return plug_in.get("daemon_uid", "0")


def privileged_uids(plug_in: Mapping[str, str]) -> frozenset[str]:
    """The uids whose releases the plug-in accepts, besides omfsd's."""
    return _listed(plug_in.get("privileged_uids", "0"))


def operator_uids(plug_in: Mapping[str, str]) -> frozenset[str]:
    """The uids that the plug-in takes for Operators."""
    return _listed(plug_in.get("operator_uids", ""))


def _listed(text: str) -> frozenset[str]:
    return frozenset(filter(None, re.sub(r"\s", "", text).split(",")))


def _beside(settings: SlurmSettings, name: str) -> Path:
    return Path(settings.values.get("SLURM_CONF", "/etc/slurm/slurm.conf")).with_name(name)
