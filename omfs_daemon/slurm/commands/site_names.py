"""What `omfs check` asks of the site beside the gateway: the names of its QOS, and whether munge works."""

from __future__ import annotations

from pathlib import Path

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import SlurmSettings
from omfs_daemon.slurm.munge_conf import munge_socket, needs_munge


def qos_names(settings: SlurmSettings, timeout: float, conf: Path | None) -> frozenset[str]:
    """The QOS in slurmdbd; none where no accounting runs, for no job has one there. GatewayError if it is away."""
    if not settings.values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return frozenset()
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name"]
    return frozenset(run_command(command, timeout=timeout, conf=conf).stdout.split())


def munge_failure(conf: Path | None, timeout: float) -> str | None:
    """Why no credential can be made where Slurm makes its own; "" if one can, None if Slurm needs none."""
    if not needs_munge(conf):
        return None
    socket = munge_socket(conf)
    try:
        run_command(["munge", "--no-input", *([f"--socket={socket}"] if socket else [])], timeout=timeout)
    except GatewayError as error:
        return str(error)
    return ""
