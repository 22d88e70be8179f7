"""Parse the dependencies of jobs as squeue prints them, of which Slurm does not keep all up to date. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from omfs_daemon.cluster.jobs import JobState
from omfs_daemon.slurm.commands.parse_jobs import FAILED, SINGLETON, UNFULFILLED
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_state, row_tasks

# "afterok:7(unfulfilled),after:8_3+5(unfulfilled)"; what is fulfilled Slurm takes off the list.
_NAMED = re.compile(
    r"(?P<kind>after|afterany|afterok|afternotok|aftercorr):(?P<id>\d+)(?:_\*|(?P<task>_\d+))?(?:\+\d+)?"
    r"\(unfulfilled\)"
)


def dependencies(rows: Sequence[JobRow], others: Iterable[JobRow] | None = None) -> list[JobRow]:
    """The rows, without the dependencies of held jobs, and of jobs just released, that may be fulfilled by now.

    Slurm does not look at a held job's dependencies before the first tick after its release: so long they stay
    "(unfulfilled)". They are taken for true only while a job that they name is among ``others``, the jobs that have not
    ended (None: ``rows``).
    """
    stale = [row for row in rows if _may_be_stale(row)]
    if not stale:
        return list(rows)
    active = _active(rows if others is None else others)
    over = {row.job_id for row in stale if not _still_depends(row, active)}
    return [row._replace(dependency=_without_names(row)) if row.job_id in over else row for row in rows]


def awaited_jobs(row: JobRow) -> list[str]:
    """The ids of the jobs (or arrays) that a held or just released job waits for, as far as they tell ("singleton"
    names none); none of others, whose dependency Slurm keeps up to date."""
    return [match["id"] for match in _NAMED.finditer(row.dependency)] if _may_be_stale(row) else []


def _without_names(row: JobRow) -> str:
    """What remains to be looked at when the jobs that it names have ended: which jobs of the same name there are."""
    return SINGLETON if SINGLETON in row.dependency else ""


def _may_be_stale(row: JobRow) -> bool:
    if UNFULFILLED not in row.dependency:
        return False
    # Of a job that nothing holds Slurm says "Dependency" once it has looked; right after a release it says "None".
    looked_at = row.priority != "0" and row.reason.startswith("Dependency")
    if looked_at or row_state(row) is not JobState.PENDING:
        return False
    never = FAILED in row.dependency and "?" not in row.dependency
    return not never


def _active(rows: Iterable[JobRow]) -> dict[str, bool]:
    """Jobs, arrays and their tasks that have not ended, and whether any part of them is still pending."""
    active: dict[str, bool] = {}
    for row in rows:
        state = row_state(row)
        if state is JobState.ENDED:
            continue
        tasks = (f"{row.array_job_id}_{task}" for task in row_tasks(row))
        for name in (row.job_id, row.array_job_id, *tasks):
            active[name] = active.get(name, False) or state is JobState.PENDING
    return active


def _still_depends(row: JobRow, active: dict[str, bool]) -> bool:
    outstanding = []
    for entry in re.split(r"[,?]", row.dependency):
        found = _NAMED.fullmatch(entry)
        outstanding.append(found is not None and _is_outstanding(found, row, active))
    return all(outstanding) if "?" in row.dependency else any(outstanding)


def _is_outstanding(found: re.Match[str], row: JobRow, active: dict[str, bool]) -> bool:
    """Whether all tasks of the row wait. With "aftercorr" each waits for the task of its own number; with "after" they
    wait for a start only."""
    own = [f"_{task}" for task in row_tasks(row)] if found["kind"] == "aftercorr" else []
    named = [active.get(found["id"] + task) for task in own or [found["task"] or ""]]
    return all(waits is not None and (waits or found["kind"] != "after") for waits in named)
