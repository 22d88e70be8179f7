"""``omfs demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from omfs_daemon.demo.play import play_demo


def demo(
    fake: Annotated[bool, typer.Option("--fake", help="On the built-in fake Slurm, without root.")] = False,
) -> None:
    """Run a demonstration of about a minute on a private Slurm.

    Lending, reclaiming, an urgent job, and no job lost.
    """
    raise typer.Exit(play_demo(fake))
