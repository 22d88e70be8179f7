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
