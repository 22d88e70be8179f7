"""Commands register in main.py; table beside the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from rich.console import RenderableType
from rich.table import Table
from omfs_daemon.terminal.output import cell
from omfs_daemon.terminal.output import span
from omfs_daemon.terminal.output import table
from omfs_daemon.daemon.api.plan_view import ActionView
from omfs_daemon.daemon.api.plan_view import PlanView
from omfs_daemon.daemon.api.plan_view import VictimView


def plan_table(view: PlanView) -> Iterator[RenderableType]:
    """What ``omfs plan`` prints."""
    yield cell(view["sentence"])
    if view["actions"]:
        yield _actions(view["actions"], "Would be done now")
    if view["refused"]:
        yield _actions(view["refused"], "Refused by the safety gate")


def _actions(actions: Iterable[ActionView], title: str) -> Table:
    made = table(title, ("what", "job", "account", "why", "numbers", "stops"))
    for action in actions:
        made.add_row(
            cell(action["kind"]),
            cell(action["job"]),
            cell(action["account"]),
            cell(action["reason"]),
            cell(", ".join(f"{name} {value:g}" for name, value in action["numbers"].items())),
            cell(_victims(action.get("victims", []))),
        )
    return made


def _victims(victims: Iterable[VictimView]) -> str:
    return ", ".join(_victim(victim) for victim in victims)


def _victim(victim: VictimView) -> str:
    cost = f", about {span(victim['cost_seconds'])}" if victim.get("cost_seconds") else ""
    return f"{victim['job']} of {victim['account']} ({victim['method']}{cost})"
