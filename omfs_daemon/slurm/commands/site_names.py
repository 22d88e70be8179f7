"""What `omfs check` asks of the site beside the gateway: the names of its QOS, and whether munge works."""

from __future__ import annotations

import os
import re
from pathlib import Path

from omfs_daemon.errors import GatewayError
from omfs_daemon.slurm.commands.run_command import run_command
from omfs_daemon.slurm.gateway import SlurmSettings

_DEFAULT_CONF = Path("/etc/slurm/slurm.conf")


def qos_names(settings: SlurmSettings, timeout: float, conf: Path | None) -> frozenset[str]:
    """The QOS in slurmdbd; none where no accounting runs, for no job has one there. GatewayError if it is away."""
    if not settings.values.get("AccountingStorageType", "").endswith("slurmdbd"):
        return frozenset()
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name"]
    return frozenset(run_command(command, timeout=timeout, conf=conf).stdout.split())


def munge_failure(conf: Path | None, timeout: float) -> str | None:
    """Why no credential can be made where Slurm makes its own; "" if one can, None if Slurm needs none."""
    text = _text_of(conf or Path(os.environ.get("SLURM_CONF") or _DEFAULT_CONF))
    if _value(text, "AuthType") not in ("", "auth/munge"):
        return None
    socket = re.search(r"(?:^|,)socket=([^,]+)", _value(text, "AuthInfo"))
    try:
        run_command(["munge", "--no-input", *([f"--socket={socket[1]}"] if socket else [])], timeout=timeout)
    except GatewayError as error:
        return str(error)
    return ""


def _text_of(conf: Path) -> str:
    """ "" for a file that cannot be read: then the defaults hold, or Slurm gets its configuration from elsewhere."""
    try:
        return conf.read_text(errors="replace")
    except OSError:
        return ""


def _value(text: str, name: str) -> str:
    """Names in slurm.conf are not case-sensitive."""
    found = re.search(rf"(?im)^[^\S\n]*{name}[^\S\n]*=[^\S\n]*([^\s#]+)", text)
    return found[1] if found else ""
