"""Every code that the launcher can give has its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from omfs_daemon import omfs_run as launcher
from omfs_daemon.protocol import reason_codes as why
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT

# What is called with a code as its first argument.
MAKERS = {"CannotStop", "CannotStart", "Hold", "Trouble", "_gone", "_runs_on", "_lost", "_held"}


def codes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            values = node.args if name in MAKERS else []
            values = values + [each.value for each in node.keywords if each.arg == "why"]
        elif isinstance(node, ast.Assign) and ast.unparse(node).startswith("why"):
            values = [node.value]
        for constant in (each for value in values for each in ast.walk(value)):
            text = constant.value if isinstance(constant, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"[a-z]+(_[a-z]+)*", text):
                yield text


def test_every_code_in_the_sources_has_words() -> None:
    found: set[str] = set()
    for path in Path(launcher.__file__).parent.rglob("*.py"):
        found |= set(codes(ast.parse(path.read_text())))
    assert {"no_space", "killed", "coordinator_gone", "tool_hung", "pid_taken", "woken", "busy"} <= found
    # Words of the same form in the same places that are no codes: a method, and what Python asks for.
    assert found - {"none", "replace", "why"} - set(why.TEXT) == set()


def test_the_words_are_for_people() -> None:
    for code, text in why.TEXT.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert text == text.strip() and not text.endswith(".") and " " in text


def test_the_daemon_has_words_for_all_of_them() -> None:
    assert set(why.TEXT) <= set(WHY_TEXT)
