"""``omfs config``."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Annotated

import typer

from omfs_daemon.config.daemon_user import uid_of_daemon
from omfs_daemon.config.job_submit_conf import as_text, plugin_settings
from omfs_daemon.config.load import parse_config
from omfs_daemon.config.sample import as_toml, effective, sample
from omfs_daemon.config.schema import Config
from omfs_daemon.config.socket_path import DEFAULT_PATH
from omfs_daemon.config.text_file import read_input
from omfs_daemon.errors import ConfigError, GatewayError
from omfs_daemon.slurm.commands.admin_level import admin_levels
from omfs_daemon.slurm.commands.command_gateway import CommandGateway
from omfs_daemon.slurm.settings_check import slurm_user
from omfs_daemon.terminal.exit_status import Exit, FaultLine
from omfs_daemon.terminal.output import clean, print_json
from omfs_daemon.terminal.session import AsJson, session_of

app = typer.Typer(
    cls=FaultLine,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Show and check the configuration file; works without the daemon.",
)


@app.command("default", epilog="Example: omfs config default > /etc/omfs/omfs.toml")
def default() -> None:
    """Print a commented sample with every option, its default and an example."""
    print(sample(), end="")


@app.command("show", epilog="Example: omfs -c omfs.toml config show")
def show_config(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """Print the effective configuration, defaults included."""
    config = session_of(context).config()
    if as_json:
        print_json(effective(config).model_dump(mode="json", by_alias=True))
    else:
        print(as_toml(config), end="")


@app.command("job-submit", epilog="Example: omfs config job-submit > /etc/slurm/omfs_job_submit.conf")
def job_submit(
    context: typer.Context,
    privileged: Annotated[
        list[str] | None,
        typer.Option(
            help="Another user who may hold, release and rank all jobs, besides root, SlurmUser and Administrators."
        ),
    ] = None,
) -> None:
    """Print the settings of the submit plug-in (job_submit.lua): classes, methods, limits, paths.

    Run it as the user that starts omfsd, and again whenever the configuration, SlurmUser, or an AdminLevel in slurmdbd
    changes; `omfs check` reports when.
    """
    config = session_of(context).config()
    daemon_uid = uid_of_daemon(config.daemon)
    named = {_uid(name) for name in privileged or ()}
    slurm_user_uid, levels = _known_to_slurm(config)
    operators = {uid for uid, level in levels.items() if level == "Operator"}
    uids = {0, daemon_uid, *slurm_user_uid, *levels, *named} - operators
    print(as_text(plugin_settings(config, uids, daemon_uid, operators)), end="")


def _known_to_slurm(config: Config) -> tuple[set[int], dict[int, str]]:
    """The uid of SlurmUser, and AdminLevels by uid; both empty, with a line to stderr, if Slurm does not answer."""
    slurm = config.slurm
    try:
        settings = CommandGateway(slurm.conf, slurm.timeout_seconds).settings()
    except GatewayError as error:
        typer.echo(f"omfs: without SlurmUser, Administrators and Operators: {clean(str(error))}", err=True)
        return set(), {}
    uid = slurm_user(settings.values)
    return set() if uid is None else {uid}, admin_levels(settings, slurm.timeout_seconds, slurm.conf)


def _uid(user: str) -> int:
    try:
        return int(user) if user.isascii() and user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"--privileged {user}: must be a user of this host, or a uid") from None


@app.command("check", epilog="Example: omfs config check /etc/omfs/omfs.toml")
def check_file(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The file; default: the one of --config.")] = None,
) -> None:
    """Check a file: exit code 0 if it is valid; else 1, and one line that says what is wrong."""
    path = file or session_of(context).config_path or DEFAULT_PATH
    text = read_input(path)
    try:
        parse_config(text, str(path))
    except ConfigError as error:
        typer.echo(f"omfs: {clean(str(error))}", err=True)
        raise typer.Exit(Exit.NO) from None
    print(f"{path}: valid")
