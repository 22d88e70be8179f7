"""Options of real-time jobs and places, as ``omfs simulate`` and ``omfs sweep`` have them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Real-time jobs and places (wfp, wfp-first, wcjs, wcjs-text)"

RealtimeFile = Annotated[
    Path | None,
    typer.Option(
        "--realtime", metavar="FILE", help="CSV with a column job_id: the real-time jobs.", rich_help_panel=PANEL
    ),
]
RealtimeUnder = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Jobs that run less are real-time; with --realtime-share, the share is drawn among them.",
        rich_help_panel=PANEL,
    ),
]
LayoutName = Annotated[
    str,
    typer.Option(
        "--layout",
        metavar="flat|aligned:UNIT|mira",
        help="Where jobs run: any CPUs, or a place of its own for each.",
        rich_help_panel=PANEL,
    ),
]
PlacesFile = Annotated[
    Path | None,
    typer.Option("--places", metavar="FILE", help="The places: CSV with place,size,units.", rich_help_panel=PANEL),
]
FileSystem = Annotated[
    str,
    typer.Option(
        metavar="shared|each", help="Whether checkpoints written at once share its rate.", rich_help_panel=PANEL
    ),
]
MemoryPerCpu = Annotated[
    float,
    typer.Option(
        metavar="BYTES", help="What a checkpoint has for each CPU, if the trace does not say.", rich_help_panel=PANEL
    ),
]
ActAt = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CATEGORY=X",
        help="Slowdown from which a real-time job is due; categories: narrow-short, narrow-long, wide-short, "
        "wide-long; repeatable.",
        rich_help_panel=PANEL,
    ),
]
VictimMax = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CATEGORY=X", help="Slowdown above which a job is not stopped; repeatable.", rich_help_panel=PANEL
    ),
]
Weight = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FACTOR=X",
        help="Exponent of a factor of the cost: slowdown, checkpoint, remaining; 0 switches it off; repeatable.",
        rich_help_panel=PANEL,
    ),
]
SCHEMES = "none|sys:SECONDS|app:PERCENT|jit"
