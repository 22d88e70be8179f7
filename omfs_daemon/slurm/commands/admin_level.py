"""Who is an Operator or an Administrator in slurmdbd."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import SlurmSettings


def admin_levels(settings: SlurmSettings, timeout: float, conf: Path | None) -> dict[int, str]:
    """AdminLevel ("Operator", "Administrator") by uid, of those who have one and are users of this host.

    Empty where no slurmdbd runs or it does not answer.
    """
    if not settings.values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return {}
    command = ["sacctmgr", "-nP", "show", "user", "format=User,AdminLevel"]
    try:
        printed = run_command(command, timeout=timeout, conf=conf).stdout
    except GatewayError:
        return {}
    return dict(_levels(printed))


def _levels(printed: str) -> Iterator[tuple[int, str]]:
    for line in printed.splitlines():
        user, _, level = line.strip().partition("|")
        if level and level != "None":
            with suppress(KeyError):
                yield pwd.getpwnam(user).pw_uid, level
