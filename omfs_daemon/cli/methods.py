"""``omfs methods``: in which ways jobs can be stopped here, and how fast that has been."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from rich.console import RenderableType
from rich.text import Text
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.daemon.api.methods_view import MethodNowView
from omfs_daemon.daemon.api.methods_view import MethodsView
from omfs_daemon.daemon.api.methods_view import MethodView
from omfs_daemon.daemon.api.methods_view import WhyNotView
from omfs_daemon.terminal.output import pace_text
import time
from typing import Annotated
import typer
from omfs_daemon.cli.methods_fit import fits as method_tables_fits
from omfs_daemon.cli.methods_fit import fits_as_json as method_tables_fits_as_json
from omfs_daemon.terminal.exit_status import Exit
from omfs_daemon.daemon.api.client import UnreachableError
from omfs_daemon.terminal.output import print_json
from omfs_daemon.terminal.output import show
from omfs_daemon.terminal.session import Session
from omfs_daemon.terminal.session import session_of
from omfs_daemon.terminal.times import seconds_since_epoch
from omfs_daemon.config.build import rules
from omfs_daemon.config.build import stop_timeouts
from omfs_daemon.daemon.api.history_view import paid
from omfs_daemon.cli.methods_fit import fitted
from omfs_daemon.preemption.cost_fit import fit
from omfs_daemon.preemption.cost_fit import points
from omfs_daemon.daemon.api.methods_view import methods_view
from omfs_daemon.daemon.api.operations import LONGEST_HISTORY
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.preemption.methods.registry import installed

_DONE_BY = {"slurm": "Slurm", "omfs-run": "omfs-run in the job", "omfs-node": "omfs-node on its nodes"}
_CPUS = {"cpus": "CPUs"}


def methods_table(view: MethodsView) -> Iterator[RenderableType]:
    """What ``omfs methods`` prints."""
    columns = ("method", "keeps work", "comes back", "frees", "done by", "stop", "back", "time-out", "usable now")
    made = table(f"How jobs can be stopped (as {clean(view['source'])} has it)", columns, ("time-out",))
    for method in view["methods"]:
        pace = method["pace"]
        made.add_row(
            cell(method["name"] + ("" if method["built_in"] else " (of the site)")),
            "yes" if method["keeps_work"] else "no",
            cell(method["comes_back"]),
            cell(", ".join(_CPUS.get(what, what) for what in method["frees"])),
            cell(_DONE_BY[method["done_by"]]),
            pace_text(pace["stop_seconds"], pace["stop_bytes_per_second"]),
            pace_text(pace["back_seconds"], pace["back_bytes_per_second"]),
            span(method["stop_timeout_seconds"]),
            _usable(method.get("now")),
        )
    yield made
    yield from _why_not(view["methods"])
    if not any("now" in method for method in view["methods"]):
        yield Text("where they can be used now only omfsd knows: it does not answer, or has not seen Slurm yet")


def _usable(now: MethodNowView | None) -> str:
    if now is None:
        return "?"
    if "ready" in now:
        jobs = now["ready"]
        return f"in {jobs} running job{'' if jobs == 1 else 's'}"
    return f"on {now.get('usable', 0)} of {now.get('nodes', 0)} nodes"


def _why_not(rows: Iterable[MethodView]) -> Iterator[Text]:
    for method in rows:
        for why_not in method.get("now", MethodNowView(why_not=[]))["why_not"]:
            yield cell(f"{method['name']}: not on {_nodes(why_not)}: {why_not['why']}")


def _nodes(why_not: WhyNotView) -> str:
    named, more = ", ".join(why_not["nodes"]), why_not["count"] - len(why_not["nodes"])
    return f"{named} and {more} more" if more > 0 else named


method_tables_methods = methods_table

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
    print_json(view) if as_json else show(*method_tables_methods(view))


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
    print_json(method_tables_fits_as_json(found)) if as_json else show(*method_tables_fits(found))
    if not found:
        raise typer.Exit(Exit.NO)
