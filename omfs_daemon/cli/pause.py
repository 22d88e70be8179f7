"""``omfs pause`` and ``omfs resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from omfs_daemon.terminal.output import clean
from omfs_daemon.terminal.session import session_of


def pause(
    context: typer.Context,
    reason: Annotated[str, typer.Option(help="The reason, shown to everybody by omfs status.")] = "",
) -> None:
    """Make no new decisions until `omfs resume`.

    Preemptions under way are completed. Slurm goes on by itself.
    """
    print(clean(session_of(context).client().pause(reason)["done"]))


def resume(context: typer.Context) -> None:
    """End a pause."""
    print(clean(session_of(context).client().resume()["done"]))
