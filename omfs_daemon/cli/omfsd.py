"""``omfsd``: starts the daemon."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omfs_daemon.daemon import log
from omfs_daemon.terminal.exit_status import exit_code
from omfs_daemon.terminal.output import clean
from omfs_daemon.config.load import DEFAULT_PATH
from omfs_daemon.config.load import load
from omfs_daemon.errors import OmfsError

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


@app.command(epilog="Example: omfsd -c omfs.toml --once --dry-run --log-format console. Exit code 2: wrong input.")
def main(
    config_path: Annotated[
        Path, typer.Option("--config", "-c", envvar="OMFS_CONFIG", help="The configuration.")
    ] = DEFAULT_PATH,
    once: Annotated[bool, typer.Option("--once", help="One cycle, then end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and tell, but order nothing from Slurm.")] = False,
    log_format: Annotated[LogFormat | None, typer.Option(help="Instead of the configured one.")] = None,
) -> None:
    """Watch Slurm, give every account its share at once, lend what is idle and take it back."""
    try:
        config = load(config_path)
        log.set_up(log_format.value if log_format else config.daemon.log_format, config.daemon.log_level)
        from omfs_daemon.daemon.process import main as service_main

        code = service_main(config, config_path, once=once, dry_run=dry_run)
    except OmfsError as error:
        typer.echo(f"omfsd: {clean(str(error))}", err=True)
        raise typer.Exit(exit_code(error)) from None
    raise typer.Exit(code)


def run() -> None:
    """The console script ``omfsd``."""
    app()
