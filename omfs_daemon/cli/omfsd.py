"""``omfsd``: the command line of the daemon."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from omfs_daemon import __version__
from omfs_daemon.config.load import load
from omfs_daemon.config.load_valid_parts import load_valid_parts
from omfs_daemon.config.schema import DaemonSection
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.daemon import log
from omfs_daemon.errors import ConfigError, OmfsError
from omfs_daemon.terminal.exit_status import exit_code, run_plainly
from omfs_daemon.terminal.output import clean

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogFormat(StrEnum):
    AUTO = "auto"
    JOURNAL = "journal"
    JSON = "json"
    CONSOLE = "console"


def _version(asked: bool) -> None:
    if asked:
        print(f"omfsd {__version__}")
        raise typer.Exit()


@app.command(epilog="Example: omfsd -c omfs.toml --once --dry-run --log-format console. Exit code 2: wrong input.")
def omfsd(
    config_path: Annotated[
        Path, typer.Option("--config", "-c", envvar="OMFS_CONFIG", help="The configuration.")
    ] = DEFAULT_PATH,
    once: Annotated[bool, typer.Option("--once", help="Run one cycle, then exit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and log, but send no orders to Slurm.")] = False,
    check_only: Annotated[
        bool,
        typer.Option(
            "--check-state",
            help="Say whether this version reads what is in daemon.state_dir, and what it converts, and exit, with 1 if"
            " it does not. Nothing is changed, and an omfsd may run.",
        ),
    ] = False,
    root_process: Annotated[
        bool, typer.Option("--root-process", help="Be the root process of an omfsd: only for omfs-root.service.")
    ] = False,
    log_format: Annotated[LogFormat | None, typer.Option(help="Overrides the configured one.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Watch Slurm, give every account its entitlement at once, lend idle resources, and reclaim them by preemption."""
    try:
        if root_process:
            raise typer.Exit(_serve_as_root(config_path, log_format))
        config = load(config_path)
        if check_only:
            raise typer.Exit(_report_state(config.daemon))
        log.set_up(log_format.value if log_format else config.daemon.log_format, config.daemon.log_level)
        from omfs_daemon.daemon.run_daemon import run_daemon

        code = run_daemon(config, config_path, once=once, dry_run=dry_run)
    except OmfsError as error:
        _say(error, config_path, log_format)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


def _report_state(daemon: DaemonSection) -> int:
    from omfs_daemon.daemon.check_state import check_state
    from omfs_daemon.daemon.leadership.shared_state import decided_state_dir, files_by_directory

    try:
        kept = files_by_directory(daemon.state_dir, decided_state_dir(daemon))
    except OSError as error:
        raise ConfigError(f"{daemon.shared_directory}: cannot be read: {error.strerror}") from error
    reports = [check_state(directory, files) for directory, files in kept.items()]
    for line in (line for report in reports for line in report.lines):
        typer.echo(clean(line))
    return 0 if all(report.is_read for report in reports) else 1


def _say(error: OmfsError, config_path: Path, log_format: LogFormat | None) -> None:
    """Why omfsd ends, in the form of its log, as far as the configuration says which; a line on a terminal."""
    chosen = log_format.value if log_format else load_valid_parts(config_path)[0].daemon.log_format
    if chosen == "console" or (chosen == "auto" and sys.stderr.isatty()):
        typer.echo(f"omfsd: {clean(str(error))}", err=True)
        return
    log.set_up(chosen, "info")
    structlog.get_logger("omfsd").error("daemon_failed", error=str(error))


def _serve_as_root(config_path: Path, log_format: LogFormat | None) -> int:
    log.set_up((log_format or LogFormat.AUTO).value, "info")
    from omfs_daemon.daemon.root_process.root_service import run_root_service

    return run_root_service(config_path)


def run() -> None:
    """The console script ``omfsd``."""
    run_plainly(app, "omfsd")
