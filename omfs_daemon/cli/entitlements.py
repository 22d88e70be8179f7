"""``omfs entitlements``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.config.entitlement_text import from_csv, from_rows, from_toml, to_rows, to_toml
from omfs_daemon.config.load import read_text
from omfs_daemon.config.percent import percent, percent_text
from omfs_daemon.daemon.api.entitlements_view import EntitlementChange, EntitlementsView
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import cell, clean, print_json, show, table
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def entitlements_table(view: EntitlementsView) -> Iterator[RenderableType]:
    """What ``omfs entitlements list`` prints."""
    made = table(f"Entitlements ({view['source']})", ("account", "percent", "of"), ("percent",))
    for entitlement in view["entitlements"]:
        made.add_row(
            cell(entitlement["account"]), cell(entitlement["percent"]), cell(entitlement["parent"] or "the cluster")
        )
    yield made


app = typer.Typer(
    cls=FaultLine,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Show and change the entitlements of the accounts. A change is checked as a whole, applies at once and across"
    " restarts, and is audited.",
)


@app.command("list", epilog="Example: omfs entitlements list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the entitlements in force and their source."""
    view = session_of(context).client().entitlements()
    print_json(view) if as_json else show(*entitlements_table(view))


@app.command("set", epilog="Example: omfs entitlements set bio 12.5 --parent science")
def set_(
    context: typer.Context,
    account: Annotated[str, typer.Argument(help="The Slurm account.")],
    amount: Annotated[str, typer.Argument(metavar="PERCENT", help="Of the parent's entitlement, 0 to 100.")],
    parent: Annotated[str | None, typer.Option(help='The parent account; "" for none. Default: unchanged.')] = None,
) -> None:
    """Set the entitlement of an account."""
    try:
        exact = percent_text(percent(amount))
    except ValueError as error:
        raise ConfigError(f"PERCENT = {amount!r}: {error}") from error
    change: EntitlementChange = {"op": "set", "account": account, "percent": exact}
    if parent is not None:
        change["parent"] = parent
    _print_changes(session_of(context).client().change_entitlements(change))


@app.command("remove", epilog="Example: omfs entitlements remove bio")
def remove(context: typer.Context, account: Annotated[str, typer.Argument(help="The Slurm account.")]) -> None:
    """Remove the entitlement of an account.

    Its jobs then count among those of the accounts without an entitlement.
    """
    _print_changes(session_of(context).client().change_entitlements({"op": "remove", "account": account}))


@app.command("import", epilog="Example: omfs entitlements import entitlements.csv")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="TOML with [entitlements.NAME] tables, or .csv; - is stdin (TOML).")],
) -> None:
    """Replace all entitlements by those of a file.

    TOML (such as a configuration file), or CSV with the header account,percent,parent.
    """
    text, source = (sys.stdin.read(), "stdin") if str(file) == "-" else (read_text(file), str(file))
    entitlements = (from_csv if file.suffix.lower() == ".csv" else from_toml)(text, source)
    if not entitlements:
        raise ConfigError(f"{source}: must have at least one entitlement")
    change: EntitlementChange = {"op": "replace", "entitlements": to_rows(entitlements)}
    _print_changes(session_of(context).client().change_entitlements(change))


@app.command("export", epilog="Example: omfs entitlements export > entitlements.toml")
def export(context: typer.Context) -> None:
    """Print the entitlements in force as TOML.

    For `import` or the configuration file.
    """
    view = session_of(context).client().entitlements()
    print(to_toml(from_rows(view["entitlements"])), end="")


def _print_changes(view: EntitlementsView) -> None:
    for line in view.get("changed", []) or ["nothing changed"]:
        print(clean(line))
