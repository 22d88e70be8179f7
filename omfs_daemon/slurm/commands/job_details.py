"""Asks ``scontrol --details show job`` where jobs are: CPUs and memory by node, and which CPUs and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from omfs_daemon.cluster.jobs import Allocation, JobState
from omfs_daemon.cluster.units import Units
from omfs_daemon.slurm.commands import parse_allocations as allocations
from omfs_daemon.slurm.commands import parse_jobs as parse
from omfs_daemon.slurm.commands.run_command import CommandOutput, failure

SINGLE_QUERIES = 8
"""For more jobs, one query for all is cheaper than one for each."""

_HAS_ALLOCATIONS = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED, JobState.COMPLETING)

_Key = tuple[str, str, str, str]
Parsed = TypeVar("Parsed")


class JobDetails:
    """Remembers where multi-node jobs have their CPUs. ``run`` runs a command."""

    def __init__(self, run: Callable[..., CommandOutput]) -> None:
        self._run = run
        self._spread: dict[_Key, tuple[Allocation, ...]] = {}
        self._here: dict[int, parse.JobRow] = {}

    def allocations(
        self, rows: Sequence[parse.JobRow], memory_counts: bool, forget: bool = True
    ) -> dict[str, tuple[Allocation, ...] | None]:
        """By job id, for the jobs that have nodes; None where they cannot be read. ``forget``: these are all jobs."""
        here = [row for row in rows if parse.row_state(row) in _HAS_ALLOCATIONS]
        wide = [row for row in here if len(parse.row_nodes(row)) > 1]
        new = [row for row in wide if _key(row) not in self._spread]
        exact = self._parsed(new, lambda printed, row: allocations.exact(printed, row, memory_counts))
        spread = {_key(row): found for row, found in exact}
        kept = {_key(row) for row in wide} if forget else set(self._spread)
        self._spread = {key: value for key, value in self._spread.items() if key in kept} | spread
        self._here = ({} if forget else self._here) | {int(row.job_id): row for row in here}
        return {row.job_id: self._spread.get(_key(row)) or allocations.simple(row, memory_counts) for row in here}

    def units(self, job_ids: Sequence[int]) -> dict[int, Units]:
        """Of these jobs, by raw id; without those that are not among the jobs asked for last, or cannot be read."""
        rows = [self._here[job_id] for job_id in job_ids if job_id in self._here]
        return {int(row.job_id): units for row, units in self._parsed(rows, allocations.job_units)}

    def _parsed(
        self, rows: Sequence[parse.JobRow], parser: Callable[[str, parse.JobRow], Parsed | None]
    ) -> Iterator[tuple[parse.JobRow, Parsed]]:
        """What scontrol prints about these jobs; those without an exact answer (they just ended) are left out."""
        everything = self._ask() if len(rows) > SINGLE_QUERIES else ""
        for row in rows:
            found = (parser(everything, row) if everything else None) or parser(self._ask(_ref(row)), row)
            if found:
                yield row, found

    def _ask(self, *ref: str) -> str:
        arguments = ("scontrol", "--oneliner", "--details", "show", "job", *ref)
        output = self._run(*arguments, check=False)
        if output.code != 0 and "Invalid job id specified" not in output.stderr:
            raise failure(arguments, output)
        return output.stdout


def _key(row: parse.JobRow) -> _Key:
    return (row.job_id, row.start, row.node_list, row.cpus)


def _ref(row: parse.JobRow) -> str:
    tasks = parse.row_tasks(row)
    return f"{row.array_job_id}_{tasks[0]}" if tasks else row.job_id
