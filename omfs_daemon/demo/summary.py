"""The end of the demo: who was preempted for whom and why, and the result of every job."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from omfs_daemon.demo.script import DemoScript
from omfs_daemon.terminal.output import cell, span, table


def summary_tables(script: DemoScript) -> Iterator[RenderableType]:
    """Tables, as far as the demo came."""
    if script.preemptions:
        yield _preemptions(script)
    if script.results:
        yield _results(script)


def _preemptions(script: DemoScript) -> Table:
    made = table("Who was preempted for whom", ("preempted", "method", "for", "reason", "waited"))
    for preemption in script.preemptions:
        preemptor = script.name_of(preemption["preemptor"])
        waited = script.waited.get(preemptor)
        for victim in preemption["victims"]:
            made.add_row(
                cell(script.name_of(victim["job"])),
                cell(victim["method"]),
                cell(f"{preemptor} of {preemption['account']}"),
                cell(preemption["reason"]),
                "" if waited is None else span(waited),
            )
    return made


def _results(script: DemoScript) -> Table:
    columns = ("job", "account", "waited", "starts", "worked", "state in Slurm", "last line of output")
    made = table("Results of all jobs", columns, ("waited", "starts", "worked"))
    for job in script.submitted.values():
        result, waited = script.results[job.name], script.waited.get(job.name)
        made.add_row(
            cell(job.name),
            cell(job.account),
            "" if waited is None else span(waited),
            str(result.starts),
            f"{result.steps} of {job.work} s",
            cell(result.outcome),
            "end" if result.finished else "MISSING",
        )
    return made
