"""Output: users' text made harmless, times and sizes, JSON for scripts, tables for people.

rich is imported where a table is made: it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from omfs_daemon.cluster.durations import span as span
from omfs_daemon.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_WIDE = 160


def clean(text: str) -> str:
    """Without control and direction characters, which could forge what a terminal shows."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def cell(value: object, style: str = "") -> Text:
    """A value as rich text, cleaned and never read as markup."""
    from rich.text import Text

    return Text(clean("" if value is None else str(value)), style=style)


def table(title: str, columns: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """An empty table; the columns among ``numbers`` are aligned to the right."""
    from rich.table import Table

    made = Table(title=clean(title) or None, title_justify="left", header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return made


def show(*parts: RenderableType) -> None:
    """Print for people: in color on a terminal, where tables fit its width, plain and wide in a pipe."""
    from rich.console import Console

    from omfs_daemon.terminal.fitting import fit_table

    width = None if sys.stdout.isatty() else max(_WIDE, shutil.get_terminal_size().columns)
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    for part in parts:
        console.print(fit_table(console, part))


def print_json(value: object) -> None:
    """Print for scripts."""
    print(json.dumps(value, indent=2))


def directory_option(text: str) -> Path:
    """The value of an option; ConfigError if it is empty, as a script's unset variable is."""
    if not text:
        raise ConfigError("a directory is needed, not nothing (. for the current one)")
    return Path(text)


def when(time: float | None, zone: tzinfo | None = None) -> str:
    """``2026-03-01T14:05:09``, as Slurm's commands print it, or "never"; ``zone`` None: the machine's own."""
    if time is None:
        return "never"
    return datetime.fromtimestamp(time, zone).replace(tzinfo=None).isoformat(timespec="seconds")


def speed_text(seconds: float, rate: float | None) -> str:
    """``1 s + 0.4 GB/s``."""
    by_size = None if rate is None else f"{rate / 1e9:.3g} GB/s"
    if by_size is None:
        return f"{seconds:.3g} s" if seconds else "at once"
    return f"{seconds:.3g} s + {by_size}" if seconds else by_size


def size_text(size: int) -> str:
    """``1.5 GB``, ``23 MB``."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
