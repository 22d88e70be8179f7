"""Every code that omfs-run can give has a text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from omfs_daemon import omfs_run
from omfs_daemon.preemption.methods.checkpoint import WHY_TEXT
from omfs_daemon.protocol.reason_codes import TEXT

# Functions and classes that take a code as their first argument.
MAKERS = {"CannotStop", "CannotStart", "HoldForOwner", "CriuFailure", "program_lost", "_runs_on", "_lost", "_held"}


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


def test_every_code_in_the_sources_has_a_text() -> None:
    found: set[str] = set()
    for path in Path(omfs_run.__file__).parent.rglob("*.py"):
        found |= set(codes(ast.parse(path.read_text())))
    assert {"no_space", "killed", "coordinator_gone", "tool_hung", "pid_taken", "woken", "busy"} <= found
    # Not codes, but of the same form in the same places: a method, an error handler, and a variable.
    assert found - {"none", "replace", "why"} - set(TEXT) == set()


def test_the_texts_are_for_people() -> None:
    for code, text in TEXT.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", code)
        assert text == text.strip() and not text.endswith(".") and " " in text


def test_the_daemon_has_a_text_for_all_of_them() -> None:
    assert set(TEXT) <= set(WHY_TEXT)
