"""Rules of CONTRIBUTING.md that a tool can check: unique public names, short files, no copied runs of lines."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "omfs_daemon"
ENTRY_POINTS = {"main", "run"}
MOST_LINES = 400
COPIED_LINES = 8
MOST_ATTRIBUTES = 15
FEW_ATTRIBUTES = ("daemon", "preemption")
"""The rooms of which no class keeps more than these."""

# Effects leave by one door: the calls that bring them about, and the files below daemon/ that may make them.
DOORS = {
    "send_orders": {"effects_runner.py", "failsafe.py"},
    "ask": {"effects_runner.py"},  # work on nodes
    "record_events": {"effects_runner.py", "api/operator_acts.py"},  # and what operators do to single jobs
    "record_tasks": {"effects_runner.py"},
    "record_costs": {"effects_runner.py"},
    "record_preemption": {"effects_runner.py"},
    "count_preemption": {"effects_runner.py"},
    "observe_reclaim": {"effects_runner.py"},
    "observe_cost": {"effects_runner.py"},
    "journal.write": {"effects_runner.py", "api/answers.py"},  # and what operators order: pause and resume
}


def sources() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert len(found) > 100, "the package was not found"
    return found


def public_names(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def code_lines(text: str) -> list[str]:
    """The lines that carry code: no comments, docstrings, imports, or lines of punctuation alone."""
    kept: dict[int, list[str]] = defaultdict(list)
    skipped = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout and token.start[0] not in skipped:
            kept[token.start[0]].append(token.string)
    lines = (" ".join(kept[number]) for number in sorted(kept))
    return [line for line in lines if any(character.isalnum() for character in line)]


def test_no_public_class_or_function_name_occurs_twice() -> None:
    where = defaultdict(list)
    for path in sources():
        for name in public_names(path):
            where[name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in where.items() if len(paths) > 1 and name not in ENTRY_POINTS} == {}


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_no_run_of_eight_lines_is_copied() -> None:
    seen: dict[tuple[str, ...], str] = {}
    copies = set()
    for path in sources():
        lines = code_lines(path.read_text())
        name = str(path.relative_to(PACKAGE))
        for start in range(len(lines) - COPIED_LINES + 1):
            run = tuple(lines[start : start + COPIED_LINES])
            first = seen.setdefault(run, name)
            if first != name:
                copies.add((first, name, run[0]))
    assert copies == set()


def attributes(kind: ast.ClassDef) -> set[str]:
    """The fields of a class, and what its methods assign to self."""
    fields = {
        node.target.id for node in kind.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    stored = (node for node in ast.walk(kind) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return fields | {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def test_no_class_of_the_daemon_keeps_more_than_15_attributes() -> None:
    kept = {
        f"{path.relative_to(PACKAGE)}:{node.name}": len(attributes(node))
        for path in sources()
        if path.relative_to(PACKAGE).parts[0] in FEW_ATTRIBUTES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert len(kept) > 50, "the classes were not found"
    assert {name: number for name, number in kept.items() if number > MOST_ATTRIBUTES} == {}


def calls(path: Path) -> set[str]:
    """The names of what is called; of methods also with the name of what they belong to."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            found |= {name, f"{owner.rpartition('.')[2].lstrip('_')}.{name}"}
    return found


def test_effects_leave_by_one_door() -> None:
    used = {path: calls(path) for path in sources() if path.is_relative_to(PACKAGE / "daemon")}
    for door, allowed in DOORS.items():
        found = {str(path.relative_to(PACKAGE / "daemon")) for path, names in used.items() if door in names}
        assert found == allowed, door
