"""``omfs entitlements``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cluster.accounts import Entitlement
from omfs_daemon.config.entitlement_text import (
    NO_ENTITLEMENTS,
    EntitlementRow,
    amount_text,
    from_csv,
    from_rows,
    from_toml,
    says_none,
    to_rows,
    to_toml,
)
from omfs_daemon.config.percent import amount
from omfs_daemon.config.text_file import read_input, text_of
from omfs_daemon.daemon.api.entitlements_view import EntitlementChange, EntitlementsView, RowWithoutParent
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.exit_status import FaultLine
from omfs_daemon.terminal.output import cell, clean, print_json, show, table
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def entitlements_table(view: EntitlementsView) -> Iterator[RenderableType]:
    """What ``omfs entitlements list`` prints."""
    for line in view.get("conflict", ()):
        yield cell(f"differs, in force -> in the configuration: {line}", "red")
    cpus, entitled = view.get("cpus"), view.get("entitled", {})
    now = () if cpus is None else (f"CPUs of {cpus} now",)
    made = table(f"Entitlements ({view['source']})", ("account", "percent", "of", *now), ("percent", *now))
    for entitlement in view["entitlements"]:
        account = entitlement["account"]
        cells = (
            account,
            entitlement["percent"],
            entitlement["parent"] or "the cluster",
            *([entitled.get(account)] if now else ()),
        )
        made.add_row(*map(cell, cells))
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


@app.command("set", epilog="Example: omfs entitlements set bio 30 physics 40, or omfs entitlements set bio cpus=8")
def set_(
    context: typer.Context,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="ACCOUNT AMOUNT...",
            help="Slurm accounts, each with percent of its parent's entitlement (0 to 100), or cpus=NUMBER.",
        ),
    ],
    parent: Annotated[str | None, typer.Option(help='The parent account; "" for none. Default: unchanged.')] = None,
) -> None:
    """Set the entitlements of one account or several, all at once."""
    if len(pairs) % 2:
        raise ConfigError(f"{pairs[-1]}: an amount is missing: ACCOUNT AMOUNT, ACCOUNT AMOUNT, ...")
    rows = [_row(account, text, parent) for account, text in zip(pairs[::2], pairs[1::2], strict=True)]
    change: EntitlementChange = {"op": "set", "entitlements": rows}
    _print_changes(session_of(context).client().change_entitlements(change))


def _row(account: str, text: str, parent: str | None) -> EntitlementRow | RowWithoutParent:
    try:
        exact = amount_text(Entitlement(account, *_amount(text)))
    except ValueError as error:
        raise ConfigError(f"AMOUNT = {text!r} of {account!r}: {error}") from error
    if parent is None:
        return {"account": account, "percent": exact}
    return {"account": account, "percent": exact, "parent": parent}


def _amount(text: str) -> tuple[Fraction, str, int | None]:
    part, cpus = amount(text)
    return part, "", cpus  # as Entitlement takes them


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
    text, source = (text_of(sys.stdin.buffer, "stdin"), "stdin") if str(file) == "-" else (read_input(file), str(file))
    entitlements = (from_csv if file.suffix.lower() == ".csv" else from_toml)(text, source)
    if not entitlements and (file.suffix.lower() == ".csv" or not says_none(text)):
        raise ConfigError(f"{source}: must have at least one entitlement, or an empty table [entitlements] for none")
    change: EntitlementChange = {"op": "replace", "entitlements": to_rows(entitlements)}
    _print_changes(session_of(context).client().change_entitlements(change))


@app.command("export", epilog="Example: omfs entitlements export > entitlements.toml")
def export(context: typer.Context) -> None:
    """Print the entitlements in force as TOML.

    For `import` or the configuration file.
    """
    view = session_of(context).client().entitlements()
    print(to_toml(from_rows(view["entitlements"])) or NO_ENTITLEMENTS, end="")


def _print_changes(view: EntitlementsView) -> None:
    for line in view.get("changed", []) or ["nothing changed"]:
        print(clean(line))
