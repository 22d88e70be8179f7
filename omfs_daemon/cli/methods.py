"""``omfs methods``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import typer

from omfs_daemon.cli.methods_fit import methods_fit
from omfs_daemon.cluster.clients import CLIENTS
from omfs_daemon.config.build import preempt_timeouts, rules
from omfs_daemon.daemon.api.methods_view import MethodNowView, MethodsView, MethodView, WhyNotView, methods_view
from omfs_daemon.errors import UnreachableError
from omfs_daemon.preemption.settings import Settings
from omfs_daemon.terminal.output import cell, print_json, show, span, speed_text, table
from omfs_daemon.terminal.session import AsJson, Session, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_DONE_BY = {"slurm": "Slurm", "omfs-run": "omfs-run in the job", "omfs-node": "omfs-node on its nodes"}
_CPUS = {"cpus": "CPUs"}

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Examples: omfs methods; omfs methods fit --since 30d",
)
app.command("fit", epilog="Examples: omfs methods fit --since 30d; omfs methods fit --pid 4711")(methods_fit)


@app.callback()
def methods(context: typer.Context, as_json: AsJson = False) -> None:
    """List the methods by which jobs can be preempted, and where each can be used now.

    What each keeps and frees, where the job continues, its assumed speed and its timeout. Works without the daemon,
    except for where a method can be used now.
    """
    if context.invoked_subcommand is not None:
        return
    view = _view(session_of(context))
    print_json(view) if as_json else show(*methods_table(view))


def _view(session: Session) -> MethodsView:
    """The daemon's answer, else what the configuration says."""
    try:
        return session.client().methods()
    except UnreachableError:
        config = session.config()
        settings = Settings(
            rules=rules(config, config.all_entitlements),
            preempt_timeouts=preempt_timeouts(config),
            preempt_timeout=config.policy.preempt_timeout_seconds,
        )
        return methods_view(settings, str(session.config_path or "the configuration"))


def methods_table(view: MethodsView) -> Iterator[RenderableType]:
    """What ``omfs methods`` prints."""
    columns = (
        "method",
        "keeps work",
        "continues on",
        "frees",
        "done by",
        "preempt",
        "resume",
        "timeout",
        "usable now",
    )
    made = table(f"Preemption methods (from {view['source']})", columns, ("timeout",))
    for method in view["methods"]:
        speed = method["speed"]
        made.add_row(
            cell(method["name"] + ("" if method["built_in"] else " (of the site)")),
            "yes" if method["keeps_work"] else "no",
            cell(method["comes_back"]),
            cell(", ".join(_CPUS.get(what, what) for what in method["frees"])),
            cell(_DONE_BY[method["done_by"]]),
            speed_text(speed["preempt_seconds"], speed["preempt_bytes_per_second"]),
            speed_text(speed["resume_seconds"], speed["resume_bytes_per_second"]),
            span(method["preempt_timeout_seconds"]),
            _usable(method.get("now")),
        )
    yield made
    yield from _why_not(view["methods"])
    for client in CLIENTS:
        excluded = [method["name"] for method in view["methods"] if client.name in method["not_for"]]
        if excluded:
            yield cell(f"{', '.join(excluded)}: not for jobs of {client.name}, unless they name methods")
    if whole := [method["name"] for method in view["methods"] if method["whole"]]:
        yield cell(f"{', '.join(whole)}: also for heterogeneous jobs, as a whole")
    if not any("now" in method for method in view["methods"]):
        yield cell("only omfsd knows where they can be used now: it does not answer, or has not polled Slurm yet")


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
