"""The AdminLevel of a user in slurmdbd."""

from __future__ import annotations

from pathlib import Path

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import SlurmSettings


def admin_level(settings: SlurmSettings, user: str, timeout: float, conf: Path | None) -> str:
    """Such as "Operator"; "" where no slurmdbd runs or it does not answer."""
    if not settings.values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return ""
    command = ["sacctmgr", "-nP", "show", "user", user, "format=AdminLevel"]
    try:
        return run_command(command, timeout=timeout, conf=conf).stdout.strip()
    except GatewayError:
        return ""
