"""Asks ``scontrol --details show job`` where jobs are: CPUs and memory by node, and which CPUs and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from omfs_daemon.cluster.jobs import Allocation, Job, JobState
from omfs_daemon.cluster.units import Unit, Units
from omfs_daemon.slurm.commands import parse_allocations as allocations
from omfs_daemon.slurm.commands.parse_allocations import Details
from omfs_daemon.slurm.commands.run_command import CommandOutput, failure
from omfs_daemon.slurm.commands.squeue_fields import JobRow, row_state, row_tasks

SINGLE_QUERIES = 8
"""For more jobs, one query for all is cheaper than one for each."""

MOST_TRIES = 3
"""In vain for the same row: jobs that just began or ended are read later, and an odd record costs no more than that."""

_HAS_ALLOCATIONS = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED, JobState.COMPLETING)

# What is known depends on memory_counts, too, which changes only when slurmctld starts again.
_SHOWN = attrgetter("start", "node_list", "cpus", "tres", "state")
_SAME_PLACE = 3  # the first of these: while they stay the same, so does where the CPUs are
Parsed = TypeVar("Parsed")


class _Place(NamedTuple):
    """Where a job is, and what its row showed then; ``asked``: how often in vain."""

    shown: tuple[str, ...]
    allocations: tuple[Allocation, ...] | None
    is_exact: bool = False
    asked: int = 0


class JobDetails:
    """Remembers where jobs have their CPUs. ``run`` runs a command."""

    def __init__(self, run: Callable[..., CommandOutput]) -> None:
        self._run = run
        self._places: dict[str, _Place] = {}
        self._here: dict[str, JobRow] = {}

    def allocations(
        self, rows: Sequence[JobRow], memory_counts: bool, is_all: bool = True
    ) -> dict[str, tuple[Allocation, ...] | None]:
        """By job id, for the jobs that have nodes; None where they cannot be read. ``is_all``: these are all jobs, so
        others are forgotten; else what is known is used, from any thread, and stays as it is."""
        here, places, wide = dict[str, JobRow](), dict[str, _Place](), list[JobRow]()
        for row in rows:
            job_id, known = row.job_id, self._places.get(row.job_id)
            if known is None or known.shown != _SHOWN(row):
                if row_state(row) not in _HAS_ALLOCATIONS:
                    continue
                known = _renewed(known, row, memory_counts)
            here[job_id], places[job_id] = row, known
            if not known.is_exact and known.asked < MOST_TRIES and len(known.allocations or ()) > 1:
                wide.append(row)
                places[job_id] = known._replace(asked=known.asked + 1)
        for row, found in self._parsed(wide, lambda printed, row: allocations.exact(printed, row, memory_counts)):
            places[row.job_id] = _Place(_SHOWN(row), found, is_exact=True)
        if is_all:
            self._here, self._places = here, places
        return {job_id: place.allocations for job_id, place in places.items()}

    def units(self, jobs: Sequence[Job]) -> dict[int, Units]:
        """Of these jobs, by raw id; without those that are not among the jobs asked for last, or cannot be read."""
        ids = {job.id: [str(part.id) for part in job.parts] or [str(job.id)] for job in jobs}
        rows = [self._here[one] for records in ids.values() for one in records if one in self._here]
        found = {row.job_id: units for row, units in self._parsed(rows, allocations.job_units)}
        return {
            job_id: frozenset[Unit]().union(*(found[one] for one in records))
            for job_id, records in ids.items()
            if found.keys() >= set(records)
        }

    def _parsed(
        self,
        rows: Sequence[JobRow],
        parser: Callable[[Details, JobRow], Parsed | None],
    ) -> Iterator[tuple[JobRow, Parsed]]:
        """What scontrol prints about these jobs; those without an exact answer (they just ended) are left out."""
        everything = Details.of(self._ask()) if len(rows) > SINGLE_QUERIES else None
        for row in rows:
            found = (everything and parser(everything, row)) or parser(Details.of_one(self._ask(_ref(row))), row)
            if found:
                yield row, found

    def _ask(self, *ref: str) -> str:
        arguments = ("scontrol", "--oneliner", "--details", "show", "job", *ref)
        output = self._run(*arguments, check=False)
        if output.code != 0 and "Invalid job id specified" not in output.stderr:
            raise failure(arguments, output)
        return output.stdout


def _renewed(known: _Place | None, row: JobRow, memory_counts: bool) -> _Place:
    shown = _SHOWN(row)
    if known is not None and known.is_exact and known.shown[:_SAME_PLACE] == shown[:_SAME_PLACE]:
        return known._replace(shown=shown)
    return _Place(shown, allocations.simple(row, memory_counts))


def _ref(row: JobRow) -> str:
    tasks = row_tasks(row)
    return f"{row.array_job_id}_{tasks[0]}" if tasks else row.job_id
