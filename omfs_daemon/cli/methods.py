"""``omfs methods``: in which ways jobs can be stopped here, and how fast that has been."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from omfs_daemon.cli import method_tables
from omfs_daemon.cli.faults import Exit, UnreachableError
from omfs_daemon.cli.output import print_json, show
from omfs_daemon.cli.session import Session, session_of
from omfs_daemon.cli.times import seconds_since_epoch
from omfs_daemon.config import rules, stop_timeouts
from omfs_daemon.daemon.cost_answers import paid
from omfs_daemon.daemon.fitted_text import fitted
from omfs_daemon.daemon.fitting import fit, points
from omfs_daemon.daemon.method_answers import methods_view
from omfs_daemon.daemon.operations import LONGEST_HISTORY
from omfs_daemon.daemon.settings import Settings
from omfs_daemon.daemon.views import MethodsView
from omfs_daemon.methods.registry import installed

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Examples: omfs methods; omfs methods fit --since 30d",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.callback()
def methods(context: typer.Context, as_json: AsJson = False) -> None:
    """Print in which ways jobs can be stopped, and where each can be used now.

    What is kept, where the job comes back, what others get meanwhile, the speed that is reckoned with, the time-out.
    Works without the daemon, which alone knows where a method can be used.
    """
    if context.invoked_subcommand is not None:
        return
    view = _asked(session_of(context))
    print_json(view) if as_json else show(*method_tables.methods(view))


def _asked(session: Session) -> MethodsView:
    """By the daemon, else by the configuration as this user sees it."""
    try:
        return session.client().methods()
    except UnreachableError:
        config = session.config()
        settings = Settings(
            rules=rules(config, config.shares),
            stop_by=stop_timeouts(config),
            stop_timeout=config.policy.stop_timeout_seconds,
        )
        return methods_view(settings, str(session.config_path or "the configuration"))


@app.command("fit", epilog="Example: omfs methods fit --since 30d")
def fit_(
    context: typer.Context,
    since: Annotated[str, typer.Option(help="Not before: 12h, 30d ago, or a time such as 2026-03-01T14:00.")] = "90d",
    as_json: AsJson = False,
) -> None:
    """Fit how fast each method is, from what its stops have cost: seconds = fixed + bytes / rate.

    Prints what to write into the configuration, and the options that let `omfs simulate` reckon with it.
    Exit code 1 if there is nothing to go by.
    """
    session = session_of(context)
    rows = paid(session.client().costs(LONGEST_HISTORY, seconds_since_epoch(since, time.time()))["costs"])
    fits = {way: made for way, some in points(rows).items() if (made := fit(some)) is not None}
    paces = rules(session.config(), ()).paces
    found = fitted(fits, {name: (method.traits, paces[name]) for name, method in installed().items()})
    print_json(method_tables.fits_as_json(found)) if as_json else show(*method_tables.fits(found))
    if not found:
        raise typer.Exit(Exit.NO)
