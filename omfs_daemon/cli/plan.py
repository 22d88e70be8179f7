"""``omfs plan``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omfs_daemon.cluster.job_refs import brief_ref, task_ids_of, tasks_ref
from omfs_daemon.config.text_file import read_input
from omfs_daemon.errors import ConfigError
from omfs_daemon.terminal.output import cell, print_json, show, span, table, when
from omfs_daemon.terminal.session import AsJson, session_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from omfs_daemon.daemon.api.plan_difference_view import PlanDifferenceView
    from omfs_daemon.daemon.api.plan_view import ActionView, PlanView, StartEstimateView, VictimView


def plan(
    context: typer.Context,
    new: Annotated[
        Path | None,
        typer.Option("--config", help="Another configuration: what would be different (operators)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what omfsd would do now, without doing it.

    Includes what the validator refuses, with the reason.
    """
    if new is not None:
        difference = session_of(context).client().plan_with(_configuration(new), str(new))
        print_json(difference) if as_json else show(*difference_table(difference))
        return
    view = session_of(context).client().plan()
    print_json(view) if as_json else show(*plan_table(view))


def _configuration(path: Path) -> str:
    from omfs_daemon.daemon.api.operations import LONGEST_CONFIGURATION

    text = read_input(path)
    if len(text) > LONGEST_CONFIGURATION:
        raise ConfigError(f"{path}: has {len(text):,} characters: must be at most {LONGEST_CONFIGURATION:,}")
    return text


def difference_table(view: PlanDifferenceView) -> Iterator[RenderableType]:
    """What ``omfs plan --config`` prints."""
    for name in view["at_restart"]:
        yield cell(f"{name}: changes only when omfsd is started again", "yellow")
    for line in view["entitlements"]:
        yield cell(f"entitlement of {line}")
    yield cell(f"now: {view['summary_now']}")
    yield cell(f"new: {view['summary_new']}")
    if view["only_now"]:
        yield _actions(view["only_now"], "No longer done")
    if view["only_new"]:
        yield _actions(view["only_new"], "Done by the new configuration only")
    if not view["only_now"] and not view["only_new"]:
        yield cell("both would do the same now")


def plan_table(view: PlanView) -> Iterator[RenderableType]:
    """What ``omfs plan`` prints. Users are given no summary."""
    if view["summary"]:
        yield cell(view["summary"])
    elif not (view["actions"] or view["refused"] or view.get("start_estimate")):
        yield cell("nothing is planned for your jobs now")
    if view["actions"]:
        yield _actions(view["actions"], "Would be done now")
    if view["refused"]:
        yield _actions(view["refused"], "Refused by the validator")
    if view.get("start_estimate"):
        made = table("Will start", ("job", "about", "nine chances in ten: before"))
        for job, times in _start_rows(view["start_estimate"]):
            made.add_row(cell(job), *times)
        yield made


def _start_rows(starts: Iterable[StartEstimateView]) -> Iterator[tuple[str, tuple[str, str]]]:
    """A row for all tasks of an array that follow each other and are told the same."""
    for (array, times), group in groupby(starts, _array_and_times):
        refs = [start["job"] for start in group]
        tasks = {task for ref in refs if "_" in ref for task in task_ids_of(ref.partition("_")[2].strip("[]"))}
        yield brief_ref(tasks_ref(int(array), tasks)) if tasks else array, times


def _array_and_times(start: StartEstimateView) -> tuple[str, tuple[str, str]]:
    """The array, or the job, with what is told of its start."""
    return start["job"].partition("_")[0], (_time(start["p50"]), _time(start["p90"]))


def _time(time: float | None) -> str:
    return "not within 35 days" if time is None else when(time)


def _actions(actions: Iterable[ActionView], title: str) -> Table:
    made = table(title, ("what", "job", "account", "why", "numbers", "preemptions"))
    for action in actions:
        made.add_row(
            cell(action["kind"]),
            cell(action["job"]),
            cell(action["account"]),
            cell(action["reason"]),
            cell(", ".join(f"{name} {value:g}" for name, value in action["numbers"].items())),
            cell(", ".join(_victim(victim) for victim in action.get("victims", []))),
        )
    return made


def _victim(victim: VictimView) -> str:
    cost = f", about {span(victim['cost_seconds'])}" if victim.get("cost_seconds") else ""
    return f"{victim['job']} of {victim['account']} ({victim['method']}{cost})"
