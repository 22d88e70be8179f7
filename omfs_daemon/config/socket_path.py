"""Where the control socket is: read from the configuration file without the rest of it, for commands that only ask."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

DEFAULT_PATH = Path("/etc/omfs/omfs.toml")
DEFAULT_RUN_DIR = Path("/run/omfs")
SOCKET_NAME = "omfs.sock"


def socket_path(config: Path | None) -> Path | None:
    """The socket of the daemon with this configuration; of the default one, or the defaults, if ``config`` is None.

    None if the file cannot be read so simply: :func:`omfs_daemon.config.load.load` says what is wrong with it.
    """
    if config is None:
        if not os.access(DEFAULT_PATH, os.R_OK):
            return DEFAULT_RUN_DIR / SOCKET_NAME
        config = DEFAULT_PATH
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    daemon = content.get("daemon", {})
    run_dir = daemon.get("run_dir", str(DEFAULT_RUN_DIR)) if isinstance(daemon, dict) else None
    return Path(run_dir) / SOCKET_NAME if isinstance(run_dir, str) and run_dir.startswith("/") else None
