"""``omfs failsafe``."""

from __future__ import annotations

import typer

from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.daemon import log
from omfs_daemon.daemon.failsafe import run_failsafe
from omfs_daemon.terminal.session import session_of


def failsafe(context: typer.Context) -> None:
    """Release everything that a dead omfsd held.

    Run it regularly, for example from cron: while the daemon decides, it does nothing.
    """
    session = session_of(context)
    config = session.config()
    log.set_up(config.daemon.log_format, config.daemon.log_level)
    raise typer.Exit(run_failsafe(config, session.config_path or DEFAULT_PATH))
