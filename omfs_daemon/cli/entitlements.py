"""``omfs entitlements``: who owns how much of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from rich.console import RenderableType
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.output import table
from omfs_daemon.daemon.api.entitlements_view import EntitlementsView
import sys
from pathlib import Path
from typing import Annotated
import typer
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import print_json
from omfs_daemon.terminal.output import show
from omfs_daemon.terminal.session import session_of
from omfs_daemon.config.load import read_text
from omfs_daemon.config.entitlement_text import from_csv
from omfs_daemon.config.entitlement_text import from_rows
from omfs_daemon.config.entitlement_text import from_toml
from omfs_daemon.config.entitlement_text import to_rows
from omfs_daemon.config.entitlement_text import to_toml
from omfs_daemon.daemon.api.entitlements_view import EntitlementChange
from omfs_daemon.errors import ConfigError
from omfs_daemon.config.percent import percent
from omfs_daemon.config.percent import percent_text


def entitlements_table(view: EntitlementsView) -> Iterator[RenderableType]:
    """What ``omfs entitlements list`` prints."""
    made = table(f"Entitlements ({clean(view['source'])})", ("account", "percent", "of"), ("percent",))
    for share in view["entitlements"]:
        made.add_row(cell(share["account"]), cell(share["percent"]), cell(share["parent"] or "the machine"))
    yield made


tables_entitlements = entitlements_table

app = typer.Typer(
    cls=FaultLine,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Who owns how much. Changes are checked as a whole, hold at once and over restarts, and are audited.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command("list", epilog="Example: omfs entitlements list")
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """Print the entitlements in force and where they come from."""
    view = session_of(context).client().entitlements()
    print_json(view) if as_json else show(*tables_entitlements(view))


@app.command("set", epilog="Example: omfs entitlements set bio 12.5 --parent science")
def set_(
    context: typer.Context,
    account: Annotated[str, typer.Argument(help="The Slurm account.")],
    amount: Annotated[str, typer.Argument(metavar="PERCENT", help="Of the parent's share, 0 to 100.")],
    parent: Annotated[
        str | None, typer.Option(help='The account above; "" puts it at the top. Left out: stays.')
    ] = None,
) -> None:
    """Give an account its entitlement."""
    try:
        exact = percent_text(percent(amount))
    except ValueError as error:
        raise ConfigError(f"PERCENT = {amount!r}: {error}") from error
    change: EntitlementChange = {"op": "set", "account": account, "percent": exact}
    if parent is not None:
        change["parent"] = parent
    _tell(session_of(context).client().change_entitlements(change))


@app.command("remove", epilog="Example: omfs entitlements remove bio")
def remove(context: typer.Context, account: Annotated[str, typer.Argument(help="The Slurm account.")]) -> None:
    """Take an account's entitlement away.

    Its jobs then count among those of all accounts that are not named.
    """
    _tell(session_of(context).client().change_entitlements({"op": "remove", "account": account}))


@app.command("import", epilog="Example: omfs entitlements import shares.csv")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="TOML with [entitlements.NAME] tables, or .csv; - is stdin (TOML).")],
) -> None:
    """Replace all entitlements by those of a file.

    TOML (the configuration file too) or CSV. CSV begins with the line account,percent,parent.
    """
    text, source = (sys.stdin.read(), "stdin") if str(file) == "-" else (read_text(file), str(file))
    shares = (from_csv if file.suffix.lower() == ".csv" else from_toml)(text, source)
    if not shares:
        raise ConfigError(f"{source}: must have at least one entitlement, to replace the others")
    _tell(session_of(context).client().change_entitlements({"op": "replace", "shares": to_rows(shares)}))


@app.command("export", epilog="Example: omfs entitlements export > shares.toml")
def export(context: typer.Context) -> None:
    """Print the entitlements in force as TOML.

    `import` and the configuration file take it.
    """
    view = session_of(context).client().entitlements()
    print(to_toml(from_rows(view["entitlements"])), end="")


def _tell(view: EntitlementsView) -> None:
    for line in view.get("changed", []) or ["nothing changed"]:
        print(clean(line))
