"""``omfs failsafe``."""

from __future__ import annotations

import os

import structlog
import typer

from omfs_daemon.config.load_valid_parts import load_valid_parts
from omfs_daemon.config.schema import Config
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.daemon import log
from omfs_daemon.daemon.failsafe import run_failsafe
from omfs_daemon.terminal.session import session_of


def failsafe(context: typer.Context) -> None:
    """Release everything that a dead omfsd held.

    Run it regularly, for example from cron: while the daemon decides, it does nothing. It works without the
    configuration, or with one that is wrong.
    """
    path = session_of(context).config_path
    is_there = path is not None or os.access(DEFAULT_PATH, os.R_OK)
    path = path or DEFAULT_PATH
    config, wrong = load_valid_parts(path) if is_there else (Config(), "")
    log.set_up(config.daemon.log_format, config.daemon.log_level)
    if wrong:
        directory = str(config.daemon.state_dir)
        text = "what is right in it counts, and defaults for the rest"
        structlog.get_logger("failsafe").warning("configuration_wrong", error=wrong, state_dir=directory, message=text)
    raise typer.Exit(run_failsafe(config, path))
