"""Commands that the pages name in a sentence exist, and take a job only where they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omfs_daemon.cli.lazy_command import LazyCommand
from omfs_daemon.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_NAMED = re.compile(r"`omfs ([a-z]+)((?: [^`\n]*)?)`")


def takes_words(name: str) -> bool:
    """Whether a word that is no option may follow: an argument, or a command of the group."""
    command = LazyCommand(name, COMMANDS[name]).load()
    return hasattr(command, "commands") or any(one.param_type_name == "argument" for one in command.params)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_that_a_page_names_is_one(page: Path) -> None:
    for name, rest in _NAMED.findall(page.read_text()):
        assert name in COMMANDS, f"omfs {name}"
        first = rest.split()[:1]
        assert takes_words(name) or not first or first[0].startswith(("-", "[")), f"omfs {name}{rest}"
