"""Every event of the log and of the history stands in docs/events.md as it is in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import omfs_daemon
from omfs_daemon.preemption.preemption import PreemptionOutcome

PACKAGE = Path(omfs_daemon.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "events.md"
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
LOGGERS = ("log", "_log")
EVENT_NAME = re.compile(r"[a-z]+(_[a-z]+)*\Z")


class LogEvent(NamedTuple):
    name: str
    level: str
    fields: frozenset[str]
    has_traceback: bool


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def is_logger(value: ast.expr) -> bool:
    match value:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name in LOGGERS
        case ast.Call():
            return called(value) == "get_logger"
    return False


def logged() -> set[LogEvent]:
    found = set()
    for path, tree in modules():
        if "get_logger" not in path.read_text(encoding="utf-8"):
            continue
        for call in calls(tree):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS and is_logger(call.func.value)):
                continue
            where = f"{path}:{call.lineno}"
            (event,) = call.args
            assert isinstance(event, ast.Constant) and EVENT_NAME.match(event.value), f"{where}: the event is no name"
            names = [keyword.arg for keyword in call.keywords]
            assert None not in names, f"{where}: fields are passed as **"
            fields = frozenset(name for name in names if name is not None)
            method = call.func.attr
            found.add(LogEvent(event.value, LEVELS[method], fields, method == "exception"))
    return found


def passed(function: str, position: int) -> Iterator[ast.expr]:
    """The arguments at a position of all calls of a function of this name; ``self`` does not count."""
    for _, tree in modules():
        yield from (call.args[position] for call in calls(tree) if called(call) == function)


def parameter(name: str, call: ast.Call, tree: ast.Module) -> tuple[str, int]:
    """The function around the call that has a parameter of this name, and the parameter's position."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and call in ast.walk(function):
            names = [argument.arg for argument in function.args.args if argument.arg != "self"]
            if name in names:
                return function.name, names.index(name)
    raise AssertionError(f"line {call.lineno}: where the event {name!r} comes from is not clear")


def job_events() -> set[str]:
    found = set()
    for _, tree in modules():
        for call in (call for call in calls(tree) if called(call) == "JobEvent"):
            match call.args[4]:
                case ast.Constant(str(name)):
                    found.add(name)
                case ast.Attribute(ast.Name("outcome"), "value"):
                    found |= {outcome.value for outcome in PreemptionOutcome}
                case ast.Name(name):
                    values = list(passed(*parameter(name, call, tree)))
                    assert values and all(isinstance(value, ast.Constant) for value in values)
                    found |= {value.value for value in values if isinstance(value, ast.Constant)}
                case other:
                    raise AssertionError(f"line {call.lineno}: {ast.unparse(other)} is no name of an event")
    return found


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the document."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_log_events_are_those_of_the_document() -> None:
    documented = [
        LogEvent(event.split("`")[1], level, frozenset(re.findall(r"`(\w+)`", fields)), "†" in event)
        for event, level, fields, _ in rows("Log")
    ]
    assert len({event.name for event in documented}) == len(documented), "an event is listed twice"
    assert set(documented) == logged()


def test_history_events_are_those_of_the_document() -> None:
    documented = [event.strip("`") for event, _, _ in rows("History")]
    assert sorted(set(documented)) == sorted(documented), "an event is listed twice"
    assert set(documented) == job_events()


def test_tables_are_sorted() -> None:
    for heading in ("Log", "History"):
        names = [row[0].split("`")[1] for row in rows(heading)]
        assert names == sorted(names)
