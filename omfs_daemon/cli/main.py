"""``omfs``: what operators and users type."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated
import typer
from omfs_daemon import __version__
from omfs_daemon.daemon import log
from omfs_daemon.cli import check as checks
from omfs_daemon.cli import configuration
from omfs_daemon.cli import entitlements
from omfs_daemon.cli.simulation import experiment
from omfs_daemon.cli.history import costs as method_tables_costs
from omfs_daemon.cli import methods
from omfs_daemon.cli.simulation import simulate
from omfs_daemon.cli.simulation import sweep
from omfs_daemon.cli.history import history_table as tables_history
from omfs_daemon.cli.plan import plan_table as tables_plan
from omfs_daemon.cli.status import status_table as tables_status
from omfs_daemon.cli.why import why_table as tables_why
from omfs_daemon.cli.simulation import whatif
from omfs_daemon.terminal.exit_status import EXIT_CODES
from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import print_json
from omfs_daemon.terminal.output import show
from omfs_daemon.terminal.session import Session
from omfs_daemon.terminal.session import session_of
from omfs_daemon.terminal.times import seconds_since_epoch
from omfs_daemon.daemon.api.operations import LONGEST_HISTORY
from omfs_daemon.terminal.session import AsJson

app = typer.Typer(
    cls=FaultLine,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)
app.add_typer(entitlements.app, name="entitlements")
app.add_typer(configuration.app, name="config")
app.add_typer(experiment.app, name="experiment")
app.add_typer(methods.app, name="methods")
app.command(epilog="Example: omfs simulate --trace hpc2n.swf.gz --policy easy --procs 240 --out result")(
    simulate.simulate
)
app.command(
    epilog="Example: omfs sweep --generate 20000 --procs 512 --policy easy --policy omfs --quantum 600 --out result"
)(sweep.sweep)
app.command(epilog="Example: omfs whatif --set entitlements.physics=40 --since 30d")(whatif.whatif)


def _version(asked: bool) -> None:
    if asked:
        print(f"omfs {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", envvar="OMFS_CONFIG", help="The configuration; else /etc/omfs/omfs.toml."),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(help="The daemon's socket, if not the one of the configuration.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Memoryless fair share and urgent jobs beside Slurm: see what omfsd does, and why; change what it goes by.

    Start with `omfs status`. `omfs why JOB` tells one job's story.
    """
    context.obj = Session(config, socket)


@app.command(epilog="Example: omfs status --json | jq .cluster")
def status(context: typer.Context, as_json: AsJson = False) -> None:
    """Print how the machine is shared among the accounts now.

    CPUs entitled, used, borrowed from others, lent to others, and asked for by waiting jobs; stops under way.
    """
    view = session_of(context).client().status()
    print_json(view) if as_json else show(*tables_status(view))


@app.command(epilog="Example: omfs plan")
def plan(context: typer.Context, as_json: AsJson = False) -> None:
    """Print what would be done this moment; nothing is done.

    What the safety gate refuses is printed too, with the reason.
    """
    view = session_of(context).client().plan()
    print_json(view) if as_json else show(*tables_plan(view))


@app.command(epilog="Example: omfs why 1234")
def why(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="A job as Slurm shows it: 1234, or 1234_7 of an array.")],
    as_json: AsJson = False,
) -> None:
    """Tell why a job waits or runs, and its story.

    Who stopped it, for whom, by which rule. Users see their own jobs, operators all.
    """
    view = session_of(context).client().why(job)
    print_json(view) if as_json else show(*tables_why(view))


@app.command(epilog="Example: omfs history --since 2d --limit 50")
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=LONGEST_HISTORY, help="How many at most.")] = 20,
    since: Annotated[str, typer.Option(help="Not before: 30m, 6h, 2d ago, or a time such as 2026-03-01T14:00.")] = "7d",
    costs: Annotated[
        bool, typer.Option("--costs", help="Instead: each stop and each return of a job, with what it has cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print who was stopped for whom, newest first, and what that has cost.

    And how long each beneficiary waited. Users see what concerns their own jobs, operators all.
    """
    client, begin = session_of(context).client(), seconds_since_epoch(since, time.time())
    if costs:
        rows = client.costs(limit, begin)
        print_json(rows) if as_json else show(*method_tables_costs(rows))
    else:
        view = client.history(limit, begin)
        print_json(view) if as_json else show(*tables_history(view))


@app.command(epilog='Example: omfs pause --reason "maintenance of the file system"')
def pause(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="Why; everybody sees it in omfs status.")] = "",
) -> None:
    """Let the daemon decide nothing new until `omfs resume`.

    Stops under way are finished. Slurm goes on by itself.
    """
    print(clean(session_of(context).client().pause(reason)["done"]))


@app.command(epilog="Example: omfs resume")
def resume(context: typer.Context) -> None:
    """End a pause."""
    print(clean(session_of(context).client().resume()["done"]))


@app.command(epilog="Example: omfs check")
def check(context: typer.Context, as_json: AsJson = False) -> None:
    """Check Slurm's settings and the daemon; say how to mend them.

    The connection, versions, permissions, and the settings that make preemption slow or unsafe. Works without
    the daemon. Run it as the user that runs omfsd. Exit code 1 if anything fails.
    """
    from omfs_daemon.config.open_gateway import opened

    session = session_of(context)
    config = session.config()
    with opened(config.slurm) as (gateway, why):
        found = checks.check(config, gateway, session.client(), why)
    print_json(checks.as_json(found)) if as_json else show(checks.as_table(found))
    if not checks.passed(found):
        raise typer.Exit(Exit.NO)


@app.command(epilog="Example: omfs demo --fake")
def demo(
    fake: Annotated[bool, typer.Option("--fake", help="On the built-in fake Slurm, without root.")] = False,
) -> None:
    """Play a story of about a minute on a private Slurm.

    Lending, taking back, an urgent job, and no job lost.
    """
    from omfs_daemon.demo import play as story

    raise typer.Exit(story.main(fake))


@app.command(epilog="Example: omfs failsafe")
def failsafe(context: typer.Context) -> None:
    """Release everything that a dead omfsd held.

    systemd runs this once the daemon has been gone for the grace time.
    """
    from omfs_daemon.daemon import failsafe as rescue

    config = session_of(context).config()
    log.set_up(config.daemon.log_format, config.daemon.log_level)
    raise typer.Exit(rescue.run(config))


def run() -> None:
    """The console script ``omfs``."""
    app()
