"""Where omfsd answers: read from the configuration file without the rest of it, for commands that only ask."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from omfs_daemon.config.login_place import LoginPlace, host_port
from omfs_daemon.config.text_file import read_text
from omfs_daemon.config.toml_text import read_toml
from omfs_daemon.errors import ConfigError

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
        content = read_toml(read_text(config))
        daemon, slurm = content.get("daemon", {}), content.get("slurm", {})
        run_dir = _word(daemon.get("run_dir", str(DEFAULT_RUN_DIR)))
        return DaemonPlaces(Path(run_dir) / SOCKET_NAME, _login(daemon, slurm)) if run_dir.startswith("/") else None
    except (ConfigError, ValueError, TypeError, AttributeError):  # no TOML, no text, or no table
        return None


def _login(daemon: dict[str, Any], slurm: dict[str, Any]) -> LoginPlace | None:
    """TypeError or ValueError for what cannot be."""
    address, user, conf = daemon.get("login_address"), daemon.get("user"), slurm.get("conf")
    if address is None:
        return None
    return LoginPlace(host_port(address), _word(user), None if conf is None else Path(_word(conf)))


def _word(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value
