"""Where omfsd answers: read from the configuration file without the rest of it, for commands that only ask."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from omfs_daemon.config.login_place import LoginPlace, host_port

DEFAULT_PATH = Path("/etc/omfs/omfs.toml")
DEFAULT_RUN_DIR = Path("/run/omfs")
SOCKET_NAME = "omfs.sock"


class DaemonPlaces(NamedTuple):
    """``login``: where it answers hosts on which its ``socket`` is not."""

    socket: Path
    login: LoginPlace | None = None


def daemon_places(config: Path | None) -> DaemonPlaces | None:
    """Of the daemon with this configuration; of the default one, or the defaults, if ``config`` is None.

    None if the file cannot be read so simply: :func:`omfs_daemon.config.load.load` says what is wrong with it.
    """
    if config is None:
        if not os.access(DEFAULT_PATH, os.R_OK):
            return DaemonPlaces(DEFAULT_RUN_DIR / SOCKET_NAME)
        config = DEFAULT_PATH
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
        daemon, slurm = content.get("daemon", {}), content.get("slurm", {})
        run_dir = daemon.get("run_dir", str(DEFAULT_RUN_DIR))
        return DaemonPlaces(Path(run_dir) / SOCKET_NAME, _login(daemon, slurm)) if run_dir.startswith("/") else None
    except (OSError, ValueError, TypeError, AttributeError):  # no text, or no table
        return None


def _login(daemon: dict[str, Any], slurm: dict[str, Any]) -> LoginPlace | None:
    """TypeError or ValueError for what cannot be."""
    address, user, conf = daemon.get("login_address"), daemon.get("user"), slurm.get("conf")
    if address is None:
        return None
    if not isinstance(user, str):
        raise TypeError
    return LoginPlace(host_port(address), user, None if conf is None else Path(conf))
